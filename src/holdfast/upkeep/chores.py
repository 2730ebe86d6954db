"""What there is to do: recover, promote, expire, wake, mark stale, forget."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import msgspec

from holdfast.answers import STALE_AFTER
from holdfast.observer import Observer
from holdfast.store import Store
from holdfast.tasks.durations import longer_than_nothing
from holdfast.upkeep.keeping import BATCH, Chore, gently
from holdfast.upkeep.letters import tell_of_expired, tell_of_recovered
from holdfast.upkeep.operations import Driver
from holdfast.upkeep.stuck import OnStuck, StuckTasks

__all__ = ["Upkeeping", "chores"]

_MINUTE = timedelta(minutes=1)
_MANY = 5000
_LATE = 20.0  # seconds that the numbers may take their time
_OVERDUE = 5.0  # seconds that something may outlive its time in a queue that nobody serves
_NET = 60.0  # seconds between looks for what no hint and no claim has moved
_QUIET = timedelta(seconds=10)  # within which whoever ended a parent cancels its children


class Upkeeping(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and for how long things are kept."""

    recovery_interval: timedelta
    cleanup_interval: timedelta = timedelta(hours=1)
    retention: timedelta = timedelta(days=7)
    dead_letter_retention: timedelta | None = None
    default_tries: int = 3
    stuck_after: timedelta | None = None
    on_stuck: OnStuck = "report"

    def __post_init__(self) -> None:
        longer_than_nothing("recovery_interval", self.recovery_interval)
        longer_than_nothing("cleanup_interval", self.cleanup_interval)
        if self.stuck_after is not None:
            longer_than_nothing("stuck_after", self.stuck_after)


def chores(
    store: Store, observer: Observer, settings: Upkeeping, work_came: Callable[[], None]
) -> list[Chore]:
    """`work_came` is called where tasks became ready that nobody gave a hint of."""

    async def recover() -> int:
        recovered = await store.recover(BATCH, default_tries=settings.default_tries)
        if recovered:
            work_came()
            await tell_of_recovered(store, observer, recovered)
        return len(recovered)

    async def promote() -> int:
        moved = await store.promote(BATCH)
        if moved:
            work_came()
        return moved

    async def expire() -> int:
        expired = await store.expire(BATCH)
        tell_of_expired(observer, expired)
        if expired:
            work_came()  # whoever waits for them goes on
            # What they had begun; not they themselves, which somebody may have replayed by now.
            await store.cancel_below([one.task for one in expired])
        return len(expired)

    async def wake() -> int:
        moved = await store.sweep_wakes(BATCH)
        if moved:
            work_came()
        return moved

    async def mark_stale() -> int:
        await store.mark_stale(STALE_AFTER)
        return 0

    behind: UUID | None = None  # where the walk through the open children goes on

    async def end_orphans() -> int:
        """On one worker at a time: children that run on for nobody, since the worker that ended
        their parent crashed before it could cancel them."""
        nonlocal behind
        if behind is None and not await store.take_turn("orphans", timedelta(seconds=_NET * 0.8)):
            return 0
        found = await store.orphans(behind, quiet=_QUIET, batch=BATCH)
        if found.tasks:
            await store.cancel(found.tasks, left=True)
        behind = found.last
        return 0 if behind is None else BATCH

    watch = StuckTasks(store, observer, after=settings.stuck_after, on_stuck=settings.on_stuck)

    async def find_stuck() -> int:
        if await watch.sweep():
            await recover()
        return 0

    async def cleanup() -> int:
        """On one worker at a time, however many there are."""
        if not await store.take_turn("cleanup", settings.cleanup_interval):
            return 0
        letters = settings.dead_letter_retention
        await gently(
            lambda: store.cleanup(settings.retention, dead_letters=letters, batch=BATCH),
            BATCH,
            patience=settings.cleanup_interval.total_seconds() / 2,
        )
        await store.forget_workers()
        return 0

    async def roll_up() -> int:
        """On one worker at a time."""
        if await store.take_turn("numbers", _MINUTE / 2):
            await gently(lambda: store.roll_up(_MANY), _MANY, patience=_LATE)
        return 0

    often = settings.recovery_interval.total_seconds()
    return [
        Chore("recovery", often, recover),
        Chore("promotion", _NET, promote),
        Chore("expiry", _OVERDUE, expire),
        Chore("wakes", _NET, wake),
        Chore("orphans", _NET, end_orphans),
        Chore("stale workers", 30.0, mark_stale),
        Chore("stuck tasks", watch.every.total_seconds(), find_stuck),
        Chore("numbers", _NET, roll_up),
        Chore("operations", _NET / 4, Driver(store, work_came).sweep),
        Chore("cleanup", settings.cleanup_interval.total_seconds(), cleanup),
    ]
