"""Workers: claim, run for a while, renew, settle; some go on although they were told not to."""

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.answers import WorkerRecord
from holdfast.errors import StoreUnreachable
from holdfast.tasks.lifecycle import (
    Cancelled,
    Expired,
    Facts,
    HandedBack,
    Outcome,
    Settlement,
    settle,
)
from holdfast.tasks.task import Claimed, Lease
from tests.simulation.handlers import handle
from tests.simulation.ledger import DEFAULT_TRIES
from tests.simulation.world import SECOND, Crashed, rest

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Run:
    """One attempt in the hands of a worker."""

    __slots__ = ("cancel", "claimed", "due")

    def __init__(self, claimed: Claimed, due: int) -> None:
        self.claimed, self.due = claimed, due
        self.cancel = claimed.cancel_requested


class Worker:
    """One start of a worker process: a main thread, and one that renews."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.healthy = simulation.world.calm  # born when nothing goes wrong any more
        self.simulation, self.world = simulation, simulation.world
        self.ledger, self.rng = simulation.ledger, simulation.world.rng
        self.process = self.world.process(name)
        self.store = simulation.store(self.process)
        self.id = self.rng.getrandbits(62)
        self.lease = timedelta(seconds=self.world.plan.lease)
        self.reckless = self.world.chance(self.world.plan.reckless)
        self.mistaken = self.world.chance(0.3)
        self.held: dict[UUID, Run] = {}
        self.lanes: list[int] = []
        self.lane_change = -1
        self.draining = False
        self.record = WorkerRecord(id=self.id, name=name, slots=self.slots)

    @property
    def slots(self) -> int:
        return 50 if self.world.calm else self.world.plan.slots

    def start(self, after: float = 0.0) -> None:
        self.world.start(self.process, self.work(), after)
        self.world.start(self.process, self.renewals(), after)

    # ── the main thread ──────────────────────────────────────────────────────────────────────

    async def work(self) -> None:
        await self._say(self.store.register(self.record))
        while not self.draining:
            await self.finish()
            room = self.slots - len(self.held)
            if room > 0 and (self.healthy or not self.world.calm):
                await self.take(50 if self.world.calm else min(room, self.rng.choice((1, 2, 50))))
            if self.world.calm:
                await self.pause(0.5 if self.held else 2.5)
            else:
                await self.pause(self.rng.choice((0.05, 0.3, 1.0, 2.0)))
            if self.world.plan.drains and not self.world.calm and self.world.chance(0.03):
                self.draining = True
        await self.write([(run.claimed.lease, self.judge(run, HandedBack())) for run in self.runs])
        await self._say(self.store.sign_off(self.id))
        self.world.sometimes("a worker drained")
        self.world.end(self.process)

    @property
    def runs(self) -> list[Run]:
        return list(self.held.values())

    async def take(self, want: int) -> None:
        grant = self.world.new_uuid()
        try:
            if self.lane_change < 0:
                found = await self.store.lanes()
                self.lane_change, self.lanes = found.change, sorted(found.lanes)
            answer = await self.store.claim(
                worker=self.id,
                lanes=self.lanes,
                want=want,
                lease=self.lease,
                grant=grant,
                turns=[self.rng.randrange(3) for _ in self.lanes]
                if self.world.plan.lanes
                else None,
            )
            tasks = answer.tasks
            self.simulation.judge_claimed(grant, tasks, whole=True)
            if answer.lanes != self.lane_change:
                self.lane_change = -1
        except StoreUnreachable:
            if self.world.chance(0.3):
                return  # what it may have been granted lapses
            try:
                tasks = await self.store.claimed(worker=self.id, grant=grant)
            except StoreUnreachable:
                return
            self.simulation.judge_claimed(grant, tasks, whole=False)
            self.world.sometimes("a claim was asked for again by its grant", bool(tasks))
        for task in tasks:
            seconds = 0.0 if self.world.calm else self.rng.choice((0.0, 0.0, 0.2, 0.5, 2.0, 6.0))
            due = self.world.now + round(seconds * self.process.pace * SECOND)
            self.held[task.lease.task] = Run(task, due)

    async def finish(self) -> None:
        settlements = []
        for run in [run for run in self.runs if run.due <= self.world.now]:
            settlement = await self.attempt(run)
            if settlement is None:
                self.held.pop(run.claimed.lease.task, None)
            else:
                settlements.append((run.claimed.lease, settlement))
        await self.write(settlements)

    async def attempt(self, run: Run) -> Settlement | None:
        """How it ended; None where the lease was lost on the way."""
        claimed = run.claimed
        if run.cancel:
            return self.judge(run, Cancelled())
        if claimed.expired:
            return self.judge(run, Expired())
        if claimed.lane.type == "poison":
            raise Crashed("poison")
        outcome = await handle(self, claimed)
        return None if outcome is None else self.judge(run, outcome)

    def judge(self, run: Run, outcome: Outcome) -> Settlement:
        claimed = run.claimed
        facts = Facts(
            tries=claimed.tries,
            # Some workers have their own idea of it: the database decides.
            max_tries=32_000 if self.mistaken else claimed.max_tries or DEFAULT_TRIES,
            retry=claimed.retry,
            alone=claimed.alone,
            cancel_requested=run.cancel,
            expired=False,  # by its own clock it cannot know
        )
        return settle(facts, outcome, self.rng.random())

    async def write(self, settlements: Sequence[tuple[Lease, Settlement]]) -> None:
        """Settle, and ask again while nobody answers; sometimes it gives up."""
        again = False
        while settlements:
            try:
                refused = await self.store.settle(settlements)
            except StoreUnreachable:
                again = True
                if self.world.chance(0.15):
                    break
                await self.pause(0.2)
                continue
            self.simulation.judge_settled(settlements, refused, again=again)
            break
        for lease, _ in settlements:
            self.held.pop(lease.task, None)

    # ── the thread that renews ───────────────────────────────────────────────────────────────

    async def renewals(self) -> None:
        while True:
            await self.pause(self.lease.total_seconds() / 3)
            leases = [run.claimed.lease for run in self.runs]
            if not leases and self.world.calm:
                continue
            try:
                if self.world.chance(0.1):
                    cancel = (await self.store.beat(self.record, leases)).cancel
                    lost: frozenset[UUID] = frozenset()
                else:
                    renewed = await self.store.renew(leases, self.lease)
                    lost, cancel = renewed.lost, renewed.cancel
            except StoreUnreachable:
                continue
            for task in cancel & self.held.keys():
                self.held[task].cancel = True
            for task in lost & self.held.keys():
                if not self.reckless:
                    del self.held[task]

    async def pause(self, seconds: float) -> None:
        """As long as it believes."""
        await rest(seconds * self.process.pace)

    async def _say(self, call: Awaitable[None]) -> None:
        with suppress(StoreUnreachable):
            await call
