"""A worker that works only while a test drains: all the parts of a real one, but for those that
wait. Nothing is claimed ahead, nothing lingers in memory, nothing is renewed: the clock stands."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.answers import Journal, WorkerRecord
from holdfast.app.executors import Executors
from holdfast.app.limits import Declaring
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.flow.asking import Asking
from holdfast.flow.branches import watching
from holdfast.ids import new_worker_id
from holdfast.observer import Ended
from holdfast.observers.many import Many
from holdfast.store import Store
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import Claimed
from holdfast.testing.crashing import Crash, Life, dying, lives, mortal
from holdfast.testing.enqueued import Enqueued
from holdfast.upkeep.letters import tell_of_expired
from holdfast.upkeep.schedules import Planner
from holdfast.work.attempt import Attempt
from holdfast.work.holding import Holding
from holdfast.work.settling import Settling, orphans_of
from holdfast.work.slots import Slots

if TYPE_CHECKING:
    from holdfast.testing.app import AppUnderTest

__all__ = ["Draining"]

_LEASE = timedelta(minutes=5, microseconds=-1)  # so that advance("5m") is past its end
_LEAVING = 5.0  # seconds that a thread has to leave a function
_NO_END = (Verdict.WAITING, Verdict.HANDED_BACK)


class Draining:
    """Drains the store of one app, as often as it is told to."""

    def __init__(self, app: "AppUnderTest", enqueued: Enqueued, crashes: Sequence[Crash]) -> None:
        self.app, self.enqueued, self.crashes = app, enqueued, crashes
        self._workers = 0
        self._busy = False

    async def drain(self, slots: int) -> tuple[int, float | None]:
        """How many attempts ended, and in how many seconds something else falls due."""
        if type(slots) is not int or slots < 1:
            raise InvalidInput(
                f"max_concurrency must be a whole number from 1 on, got {slots!r:.80}"
            )
        if self._busy:
            raise HoldfastError("it drains already; wait for that drain() to end")
        self._busy = True
        ended = 0
        try:
            while True:  # one worker after the other, as they crash
                client = await self.app.home.client()
                store = client.store
                await Declaring(store, self.app.known.values).declare()
                self._workers += 1
                record = WorkerRecord(id=new_worker_id(), name=f"worker-{self._workers}")
                await store.register(record)
                planner = Planner(client, self.app.known.values, ahead=timedelta(0))
                hand = Hand(self, store, record, slots, planner)
                next_due = await hand.work()
                ended += hand.ended
                if hand.life.cause is None:
                    return ended, next_due
                if not hand.life.cause.keep_lease:
                    for lease in hand.holding.leases():
                        await store.revoke(lease.task, lease.fence)
        finally:
            self._busy = False


class Hand:
    """One worker, until nothing is due or until it dies."""

    def __init__(
        self,
        draining: Draining,
        store: Store,
        record: WorkerRecord,
        slots: int,
        planner: Planner,
    ) -> None:
        self._draining, self._app, self._store = draining, draining.app, store
        self._record, self._count, self._planner = record, slots, planner
        self._news = asyncio.Event()
        self.life = Life(self._news.set)
        self.ended = 0
        self.holding = Holding(self._app.clock, _LEASE.total_seconds())
        self._executors = Executors(freed=self._news.set)
        self._bereft: list[Ended] = []  # whose children are to be cancelled
        self._settling = Settling(
            store,
            self.holding,
            Many(self._app.observers),
            default_tries=self._app.default_tries,
            written=self._written,
        )
        self._context = copy_context()
        self._context.run(lives, self.life)
        self._slots = self._context.run(self._make_slots)

    def _make_slots(self) -> Slots:
        return Slots(
            self._count,
            store=self._store,
            functions=lambda: self._app.known,
            executors=self._executors,
            settling=self._settling,
            holding=self.holding,
            worker_id=self._record.name,
            default_tries=self._app.default_tries,
            begin_flow=self._begin_flow,
            hungry=self._news.set,
        )

    def _begin_flow(self, attempt: Attempt, journal: Journal | None) -> Asking:
        draining = self._draining
        accepted = draining.enqueued.enqueued
        store = dying(self._store, self.life, attempt.function, draining.crashes, accepted)
        flow = Asking(store, attempt, journal)
        flow.hurry()  # whatever waits is put down at once: only the test's clock wakes it
        return flow

    async def work(self) -> float | None:
        """In how many seconds something falls due that is not due now."""
        with mortal(), watching():
            settling = asyncio.get_running_loop().create_task(
                self._settling.run(), context=self._context
            )
            try:
                return await self._work()
            finally:
                if self.life.cause is None:
                    await self._slots.drain(0.0)
                    await self._store.sign_off(self._record.id)
                settling.cancel()
                await self._executors.close()

    async def _work(self) -> float | None:
        while self.life.cause is None:
            moved = await self._chores()
            self._news.clear()
            tasks, next_due = await self._claim()
            if tasks:
                self._slots.take(tasks)
            elif not len(self.holding) and not moved:
                if not await self._thread_ended():
                    falls_due = (next_due, self._planner.next_in)
                    return min((s for s in falls_due if s is not None), default=None)
                continue
            await self._until_room(1 if tasks else self._count)
        return None

    async def _thread_ended(self) -> bool:
        """A sync function that was put down leaves its thread in a moment, and only then its slot:
        there may be more to do."""
        if self._executors.stranded:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING):
                    await self._news.wait()
                    return True
        return False

    async def _until_room(self, least: int) -> None:
        """Until what is held has ended and is written, so far that there is room."""
        held = len(self.holding)
        while self.life.cause is None and len(self.holding) >= held > self._count - least:
            await self._news.wait()
            self._news.clear()

    async def _chores(self) -> int:
        """What workers do now and then, and what their hints do at once."""
        moved, bereft, self._bereft = 0, self._bereft, []
        async for orphans, left in orphans_of(bereft, self._store):
            await self._store.cancel(orphans, left=left)
            moved += len(orphans)
        moved += await self._app.reset_expired_leases() + await self._planner.sweep()
        while expired := await self._store.expire():
            moved += len(expired)
            tell_of_expired(Many(self._app.observers), expired)
            await self._store.cancel_below([one.task for one in expired])
        for sweep in (self._store.promote, self._store.sweep_wakes):
            while count := await sweep():
                moved += count
        return moved

    async def _claim(self) -> tuple[list[Claimed], float | None]:
        room, after = min(self._slots.appetite()[0], self._count - len(self.holding)), None
        if room <= 0:
            return [], None
        while True:
            lanes, known = await self._store.lanes(), self._app.known
            serves = [i for i, lane in lanes.lanes.items() if (lane.type, lane.version) in known]
            sent = self.holding.now()
            answer = await self._store.claim(
                worker=self._record.id, lanes=serves, want=room, lease=_LEASE, after=after
            )
            self.holding.add((task.lease for task in answer.tasks), sent)
            after = answer.contended
            if answer.tasks or (after is None and answer.lanes == lanes.change):
                return answer.tasks, answer.next_due

    def _written(self, batch: Sequence[Ended], refused: frozenset[UUID]) -> None:
        for ended in batch:
            if ended.task.lease.task not in refused:
                self.ended += ended.settlement.verdict not in _NO_END
                if ended.orphans:
                    self._bereft.append(ended)
        self._slots.fill()
        self._news.set()
