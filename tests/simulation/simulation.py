"""One seed from its beginning to its end."""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from holdfast.errors import InvalidInput, KeyConflict, StoreUnreachable
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Claimed, Draft, Lease
from tests.simulation import people
from tests.simulation.ending import wind_up
from tests.simulation.ledger import Ledger, Violation, short
from tests.simulation.line import Base, Line
from tests.simulation.plan import draw
from tests.simulation.rules import RULES
from tests.simulation.workers import Worker
from tests.simulation.world import SECOND, Process, World, rest

Role = Callable[["Simulation", SqlStore], Coroutine[Any, None, None]]

NAMES = ("alpha", "alpha", "beta", "gamma")  # two containers may well share a name


class Simulation:
    """The actors of one seed, and what their answers must be."""

    def __init__(self, seed: int, base: Base, *, verbose: bool = False) -> None:
        base.fresh()
        rng = Random(seed)
        self.world = World(draw(rng), rng, base.clock, verbose=verbose)
        self.ledger = Ledger(self.world, base.conn, RULES)
        self.base = base
        self.steps: dict[UUID, bytes] = {}
        self.world.tell(None, str(self.world.plan))

    def run(self) -> Counter[str]:
        world, plan = self.world, self.world.plan
        try:
            for n in range(plan.workers):
                self.new_worker(NAMES[n], after=world.rng.random())
            for n in range(plan.producers):
                self.start(f"producer {n}", people.produce)
            for n in range(2):
                self.start(f"chores {n}", people.keep_up, reborn=True)
            if plan.operator:
                self.start("operator", people.operate, reborn=True)
            if plan.limits:
                self.start("limiter", people.limit, reborn=True)
            if plan.wall_jumps or plan.reboots:
                self.start("mishap", people.mishap, mortal=False)
            world.run(plan.horizon)
            wind_up(self)
        finally:
            world.close()
        return world.seen

    # ── processes ────────────────────────────────────────────────────────────────────────────

    def store(self, process: Process) -> SqlStore:
        return SqlStore(Line(self.world, process, self.ledger, self.base), share_commits=False)

    def new_worker(self, name: str, after: float = 0.0) -> None:
        worker = Worker(self, name)
        worker.process.reborn = lambda: self.new_worker(name, self.world.rng.uniform(0.1, 2.0))
        worker.start(after)

    def start(self, name: str, role: Role, *, reborn: bool = False, mortal: bool = True) -> None:
        process = self.world.process(name)
        if not mortal:
            self.world.processes.remove(process)
        if reborn:
            process.reborn = lambda: self.start(name, role, reborn=True)
        self.world.start(process, role(self, self.store(process)), self.world.rng.random())

    def set_wall(self, seconds: float) -> None:
        clock = self.world.clock
        self.world.tell(None, f"the wall clock was moved by {seconds} s")
        clock.set_wall(clock.wall() + round(seconds * SECOND))
        self.ledger.limits.clock_was_set()

    def reboot(self) -> None:
        self.world.tell(None, "reboot")
        self.world.sometimes("the machine was started anew")
        self.world.clock.reboot()
        for process in list(self.world.processes):
            self.world.kill(process, "reboot")

    # ── what the callers hear must be true ───────────────────────────────────────────────────

    async def enqueue(self, store: SqlStore, drafts: Sequence[Draft]) -> None:
        """Asks again after a lost answer; what was acknowledged is remembered outside."""
        for again in range(4):
            try:
                ids = await store.enqueue(drafts)
            except StoreUnreachable:
                if again == 3:
                    raise
                await rest(0.3)
                continue
            except KeyConflict:
                raise
            except InvalidInput:
                # Part of it came in, ended and was forgotten before it was asked for again, or
                # whoever held a key was: then nobody can tell this call from one with used ids.
                if again and any(self._unknowable(draft) for draft in drafts):
                    self.world.sometimes("an enqueue was asked for again after a cleanup")
                    return
                raise
            self.world.sometimes("an enqueue was asked for again", again > 0)
            for draft, id in zip(drafts, ids, strict=True):
                known = self.ledger.tasks.get(id.bytes)
                if known is None and id.bytes not in self.ledger.forgotten:
                    raise Violation(f"acknowledged as {id}, but it is not there")
                if id != draft.id and (draft.key is None or (known and known.key != draft.key)):
                    raise Violation(f"{draft.id} was answered with {id}, which has another key")
                self.ledger.acknowledged.add(id.bytes)
            return

    def _unknowable(self, draft: Draft) -> bool:
        id = draft.id.bytes
        return id in self.ledger.forgotten or (bool(draft.key) and id not in self.ledger.tasks)

    def judge_claimed(self, grant: UUID, tasks: list[Claimed], *, whole: bool) -> None:
        """What the worker was given is what was taken for it, with what it must know."""
        taken = self.ledger.granted.get(grant.bytes, {})
        if whole and taken.keys() != {task.lease.task.bytes for task in tasks}:
            raise Violation(f"the claim {short(grant.bytes)} answered other tasks than it took")
        for task in tasks:
            stand = taken.get(task.lease.task.bytes)
            if stand is None or task.lease.grant != grant:
                raise Violation(f"{task.lease.task} was not taken by this grant")
            if (task.lease.fence, task.tries, task.alone) != (
                stand.fence,
                stand.tries,
                bool(stand.alone),
            ):
                raise Violation(f"{task.lease.task}: told {task}, took {stand}")

    def judge_settled(
        self,
        settlements: Sequence[tuple[Lease, Settlement]],
        refused: frozenset[UUID],
        *,
        again: bool,
    ) -> None:
        """Accepted if and only if this very lease wrote it, now or before (I2, I12)."""
        for lease, _ in settlements:
            wrote = (lease.task.bytes, lease.grant.bytes) in self.ledger.written
            if lease.task in refused:
                if wrote and lease.task.bytes not in self.ledger.forgotten:
                    raise Violation(f"{lease} was told that it was refused, but it was written")
            elif not wrote:
                raise Violation(f"{lease} was told that it was written, but it was not")
            else:
                self.world.sometimes("a settle was accepted again", again)

    def judge_cancelled(self, answer: Mapping[UUID, str]) -> None:
        """Answered cancelled: it has ended so; ended: it had; unknown: it is not there (I11)."""
        for id, said in answer.items():
            stand = self.ledger.stands.get(id.bytes)
            self.world.sometimes(f"a cancellation was answered {said}")
            match said:
                case "cancelled":
                    true = stand is None or stand.state == "cancelled"
                case "ended":
                    true = stand is None or stand.state in ("done", "failed")
                case "unknown":
                    true = stand is None
                case _:
                    true = stand is None or self.ledger.tasks[id.bytes].cancel
            if not true:
                raise Violation(f"cancel of {id} answered {said}, but it is {stand}")
