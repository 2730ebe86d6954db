"""A worker: claims what it has room for, runs it, settles it, rests, and drains in the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Journal, WorkerRecord
from holdfast.clock import Clock
from holdfast.errors import InvalidInput, StoreError
from holdfast.executor import Executors
from holdfast.notifier import EVERYTHING, Hint, Notifier
from holdfast.observer import Ended, Observer
from holdfast.redaction import Redaction
from holdfast.store import Store
from holdfast.tasks.lane import Serving
from holdfast.tasks.lifecycle import Verdict
from holdfast.work.adoption import Adoption
from holdfast.work.ahead import Functions
from holdfast.work.attempt import Attempt
from holdfast.work.claiming import Claiming
from holdfast.work.flowing import Flowing
from holdfast.work.holding import Holding
from holdfast.work.logs import TaskLogs
from holdfast.work.looking import Looking
from holdfast.work.pace import Pace, Polling
from holdfast.work.rank import steps_below
from holdfast.work.renewal import Renewal
from holdfast.work.settling import Settling, orphans_of
from holdfast.work.slots import Slots
from holdfast.work.status import WorkerLifecycle, WorkerState
from holdfast.work.turns import short_turns
from holdfast.work.vitals import Vitals

__all__ = ["Settings", "Worker"]

logger = logging.getLogger("holdfast.worker")
_MOST_CANCELLED = 1000  # in one call
_DONE = Verdict.DONE  # in a loop, to look it up takes longer than the rest of the turn
_LAST_WORDS = 5.0  # seconds to write what ended, where there was no time to drain


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    slots: int = 10
    polling: Polling = Polling()
    lease: timedelta = timedelta(minutes=5)
    renew_every: timedelta | None = None
    beat: timedelta = timedelta(seconds=30)
    drain_timeout: timedelta = timedelta(seconds=30)
    default_tries: int = 3
    grace: timedelta = timedelta(milliseconds=50)  # for each priority above this worker's

    redact: tuple[str, ...] = ()  # names of fields whose values nobody should see
    task_logs: bool = True  # what functions log is kept with their attempts

    def __post_init__(self) -> None:
        faults = []
        if not 1 <= self.slots <= 100_000:
            faults.append(f"max_concurrency must be from 1 to 100000, got {self.slots}")
        if not timedelta(milliseconds=100) <= self.lease <= timedelta(days=365):
            faults.append(f"lease_duration must be from 0.1 s to a year, got {self.lease}")
        if self.interval > self.lease * 0.8 or self.interval <= timedelta(0):
            faults.append(
                f"heartbeat_interval of {self.interval} does not fit a lease of {self.lease}; "
                "renew it at a third of its length"
            )
        if faults:
            raise InvalidInput("; ".join(faults))

    @property
    def interval(self) -> timedelta:
        return self.lease / 3 if self.renew_every is None else self.renew_every


class Worker:
    """Serves until it is asked to drain."""

    def __init__(
        self,
        *,
        store: Store,
        opening: Callable[[], AbstractAsyncContextManager[Store]],
        notifier: Notifier,
        observer: Observer,
        clock: Clock,
        record: WorkerRecord,
        settings: Settings,
        functions: Functions,
        executors: Executors,
        serving: Callable[[], Serving],
        declare: Callable[[], Awaitable[None]],
        begin_flow: Callable[[Store, Attempt, Journal | None], Flowing],
        lifecycle: WorkerLifecycle,
    ) -> None:
        self._store, self._notifier, self._observer = store, notifier, observer
        self._chores: set[asyncio.Task[None]] = set()
        self._settings, self._lifecycle, self._record = settings, lifecycle, record
        self._functions, self._serving = functions, serving
        self._known: Any = None
        self._named: tuple[str, ...] = ()
        self._shared: frozenset[str] = frozenset()  # functions for whose end others may wait
        self._untold: list[UUID] = []  # tasks of theirs that have ended
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(settings.polling)
        self.vitals = Vitals(clock, self._loop, settings.polling.most)
        holding = self._holding = Holding(clock, settings.lease.total_seconds())
        self._claiming = Claiming(
            store,
            holding,
            worker=record.id,
            serving=serving,
            declare=declare,
            lease=settings.lease,
            renewal=settings.interval,
            durable=self._any_fenced,
        )
        self._slots: Slots
        self._renewal: Renewal
        self._looking = Looking(
            claiming=self._claiming,
            slots=lambda: self._slots,
            pace=self._pace,
            observer=observer,
            answered=self.vitals.answered,
            astray=lambda: self._renewal.look_now(),  # they were granted a while ago
        )
        self._logs = TaskLogs(store, holding) if settings.task_logs else None
        self._settling = Settling(
            store,
            holding,
            observer,
            default_tries=settings.default_tries,
            written=self._written,
            is_awake=lambda task: task in self._slots.awake,
            logs=self._logs,
        )
        adoption = Adoption(
            worker=record.id,
            lease=settings.lease,
            claiming=self._claiming,
            holding=holding,
            notifier=notifier,
            observer=observer,
            looking=self._looking,
        )
        self._slots = Slots(
            settings.slots,
            store=store,
            functions=functions,
            executors=executors,
            settling=self._settling,
            holding=holding,
            worker_id=record.name,
            default_tries=settings.default_tries,
            adoption=adoption,
            redaction=Redaction(settings.redact),
            begin_flow=lambda attempt, journal: begin_flow(store, attempt, journal),
            hungry=self._looking.hunger,
        )
        self._renewal = Renewal(
            opening=opening,
            holding=holding,
            lease=settings.lease,
            interval=settings.interval,
            beat=settings.beat,
            record=self.record,
            lost=lambda leases: self._from_outside(self._slots.lost, leases),
            cancelled=lambda tasks: self._from_outside(self._slots.cancel, tasks),
            drain=lifecycle.request_drain,
            observer=_Elsewhere(observer, self._from_outside),
            feel=self._feel,
            company=self._company,
        )

    # ── what others ask ──────────────────────────────────────────────────────────────────────

    def record(self) -> WorkerRecord:
        """This worker as the registry shows it now."""
        return msgspec.structs.replace(
            self._record,
            types=self._types(),
            lease=self._settings.lease.total_seconds(),
            status=self.vitals.status(self._lifecycle.state),
            tasks_acquired=self._looking.acquired,
            tasks_recovered=self.vitals.tasks_recovered,
            poll_interval=self._pace.interval,
            loop_lag=self.vitals.lag,
        )

    def facts(self) -> dict[str, Any]:
        """This worker as health checks and pages show it."""
        slots, active = self._slots.count, self._slots.active
        return {
            "worker_id": self._record.name,
            "active_jobs": active,
            "max_jobs": slots,
            "utilization": active / slots,
            "active_job_ids": [str(task) for task in self._slots.running],
            "active_leases": len(self._holding),
            "lease_duration": self._settings.lease.total_seconds(),
            "heartbeat_interval": self._settings.interval.total_seconds(),
            "tasks_acquired": self._looking.acquired,
            "tasks_recovered": self.vitals.tasks_recovered,
            "poll_interval": self._pace.interval,
            "loop_lag": self.vitals.lag,
            "status": self.vitals.status(self._lifecycle.state),
        }

    def work_came(self) -> None:
        """Tasks became ready that nobody gave a hint of: others may have more room for them."""
        self._looking.look_now()
        self._notifier.tell([EVERYTHING])

    def freed(self) -> None:
        """A thread that could not be stopped has ended."""
        self._slots.freed()

    # ── the life of a worker ─────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Until it is drained. Cancelled, it hands back what it holds and ends."""
        settling = asyncio.create_task(self._settling.run())
        writing = asyncio.create_task(self._logs.keep_writing()) if self._logs else None
        if self._logs:
            logging.getLogger().addHandler(self._logs)
        try:
            await self._renewal.start()
            await self._notifier.listen(self._heard)
            self._lifecycle.move(WorkerState.READY)
            logger.info("worker %s is ready, with %d slots", self._record.name, self._slots.count)
            with short_turns():
                await self._work(settling)
        finally:
            self._notifier.leave(self._heard)
            if self._logs:
                logging.getLogger().removeHandler(self._logs)
            for task in (settling, writing):
                if task:
                    task.cancel()
            await self._renewal.stop()
            self._lifecycle.move(WorkerState.STOPPED)
            logger.info("worker %s has stopped", self._record.name)

    async def _work(self, settling: "asyncio.Task[None]") -> None:
        claiming = asyncio.create_task(self._looking.run())
        asked = asyncio.create_task(self._lifecycle.wait_until_drain())
        try:
            await asyncio.wait({claiming, asked, settling}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._drain(claiming, patience=0.0)
            raise
        finally:
            asked.cancel()
        await self._drain(claiming, self._settings.drain_timeout.total_seconds())
        for task in (claiming, settling):
            if task.done() and not task.cancelled():
                task.result()  # what ended the worker is told to whoever started it

    async def _drain(self, claiming: "asyncio.Task[None]", patience: float) -> None:
        """One deadline for all of it; past it only what is short and bounded."""
        over = self._loop.time() + patience
        self._lifecycle.move(WorkerState.DRAINING)
        await self._stop_claiming(claiming, max(patience, _LAST_WORDS))
        await self._slots.drain(max(0.0, over - self._loop.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(over - self._loop.time(), _LAST_WORDS)):
                await self._looking.last_look()
                await self._settling.flush()
                while self._chores:
                    await asyncio.wait(self._chores)

    async def _stop_claiming(self, claiming: "asyncio.Task[None]", patience: float) -> None:
        """A claim that is under way is waited for: what it brings must be handed back."""
        self._looking.stop()
        self._slots.close()
        await asyncio.wait({claiming}, timeout=patience)
        claiming.cancel()
        await asyncio.wait({claiming})

    # ── claiming ─────────────────────────────────────────────────────────────────────────────

    def _heard(self, hint: Hint) -> None:
        if hint == EVERYTHING:  # hints were missed, maybe also of a cancel
            self._renewal.look_now()
        match hint.kind:
            case "work":
                queues = self._serving().queues
                if hint.name == "*" or queues is None or hint.name in queues:
                    self._looking.hint()
            case "wake":
                with suppress(ValueError):
                    if not self._slots.awake.hint(UUID(hint.name)):
                        self._looking.look_now()
            case "cancel":
                with suppress(ValueError):
                    if UUID(hint.name) in self._slots:
                        self._renewal.look_now()
            case "drain":
                if hint.name == str(self._record.id):
                    self._renewal.say_now()

    def _feel(self) -> None:
        lag = self.vitals.feel(full=self._slots.active >= self._slots.count)
        self._from_outside(self._observer.lagged, lag)

    def _company(self, workers: Sequence[WorkerRecord]) -> None:
        steps = steps_below(self._record, (w for w in workers if w.id != self._record.id))
        self._looking.grace = steps * self._settings.grace.total_seconds()

    def _types(self) -> tuple[str, ...]:
        """Of all functions that are known by now."""
        self._look_at_functions()
        return self._named

    def _look_at_functions(self) -> None:
        if (known := self._functions()) is not self._known:
            self._known = known
            self._named = tuple(sorted(f"{t}@{v}" if v else t for t, v in known))
            self._shared = frozenset(t for (t, _), f in known.items() if f.traits.shares)

    def _any_fenced(self) -> bool:
        return any(function.traits.fenced for function in self._functions().values())

    def _written(self, batch: Sequence[Ended], refused: frozenset[UUID]) -> None:
        """A settle makes room behind a limit, here and elsewhere; what is handed back is for
        others; a child's end is for its parent."""
        self._slots.fill()
        if refused:
            batch = [e for e in batch if e.task.lease.task not in refused]
        # Most are done, and nobody's children: nothing follows.
        rest = [e for e in batch if e.settlement.verdict is not _DONE or e.task.parent or e.orphans]
        if any(one.settlement.delay is not None for one in rest):
            self._looking.look_again()  # it may be due before the next look
        if rest:
            self._tell_families(rest)
        self._look_at_functions()
        if self._shared:
            self._tell_watchers(batch)
        limited = self._claiming.limited
        back = {e.task.lane.queue for e in rest if e.settlement.verdict is Verdict.HANDED_BACK}
        room = {e.task.lane.queue for e in batch if e.task.lane in limited} if limited else set()
        if back:
            self._looking.is_idle = False
        if back or room:
            self._notifier.tell(Hint("work", queue) for queue in back | room)
        if room:
            self._looking.look_now()

    def _tell_families(self, batch: Sequence[Ended]) -> None:
        ended = [e for e in batch if e.task.parent and e.settlement.verdict.final]
        elsewhere = {e.task.parent for e in ended if not self._slots.awake.tell_parent(e)}
        waiting = {e.task.lease.task for e in batch if e.settlement.verdict is Verdict.WAITING}
        if told := elsewhere | waiting:  # what it waits for may have come in the same moment
            self._notifier.tell(Hint("wake", str(task)) for task in told)
        if bereft := [e for e in batch if e.orphans]:
            self._do(self._cancel_orphans(bereft))

    def _tell_watchers(self, batch: Sequence[Ended]) -> None:
        ended = [e for e in batch if e.task.lane.type in self._shared]
        if over := [e.task.lease.task for e in ended if e.settlement.verdict.final]:
            if not self._untold:  # else they go together with those
                self._do(self._wake_watchers())
            self._untold += over

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        """Before the worker ends, if nothing crashes."""
        doing = self._loop.create_task(chore)
        self._chores.add(doing)
        doing.add_done_callback(self._chores.discard)

    async def _wake_watchers(self) -> None:
        while ended := self._untold.copy():
            watchers: list[UUID] = []
            try:
                watchers = await self._store.wake_watchers(ended)
            except StoreError as error:
                logger.warning("who waits for %d tasks hears of it later: %s", len(ended), error)
            finally:
                del self._untold[: len(ended)]
            if watchers:
                self._looking.look_now()
            self._notifier.tell(Hint("wake", str(task)) for task in watchers)

    async def _cancel_orphans(self, bereft: Sequence[Ended]) -> None:
        try:
            async for orphans, left in orphans_of(bereft, self._store):
                await self._cancel(orphans, left=left)
        except StoreError as error:
            logger.warning("children of runs that began anew may run on: %s", error)

    async def _cancel(self, tasks: Sequence[UUID], *, left: bool) -> None:
        for start in range(0, len(tasks), _MOST_CANCELLED):
            some = tasks[start : start + _MOST_CANCELLED]
            try:
                await self._store.cancel(some, left=left)
            except StoreError as error:
                logger.warning("%d children of ended tasks run on: %s", len(some), error)
            self._notifier.tell(Hint("cancel", str(task)) for task in some)

    def _from_outside(self, act: Callable[[Any], None], news: Any) -> None:
        """The renewal speaks in its own thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, news)


class _Elsewhere(Observer):
    """Tells of renewals on the worker's loop: code of users never holds up a renewal."""

    def __init__(
        self, observer: Observer, tell: Callable[[Callable[[Any], None], Any], None]
    ) -> None:
        self._observer, self._tell = observer, tell

    def renewed(self, kept: Sequence[UUID], lost: frozenset[UUID]) -> None:
        self._tell(lambda news: self._observer.renewed(*news), (kept, lost))

    def renewal_failed(self, held: Sequence[UUID]) -> None:
        self._tell(self._observer.renewal_failed, held)
