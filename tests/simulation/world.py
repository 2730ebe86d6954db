"""The world of one seed: virtual time, processes, who goes next, and what goes wrong."""

import heapq
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any
from uuid import UUID

from holdfast.clock import ManualClock
from tests.simulation.plan import Plan

SECOND = 1_000_000


class Crashed(BaseException):
    """The process is gone, with everything that it knew."""


class Process:
    """Something that can crash or be stopped, with its own idea of how fast time goes."""

    def __init__(self, name: str, pace: float = 1.0) -> None:
        self.name = name
        self.pace = pace
        self.alive = True
        self.stopped_until = 0
        self.reborn: Callable[[], None] | None = None
        # Lapsed leases: whether in company, having recorded something, expired.
        self.looked: dict[bytes, tuple[bool, bool, bool]] = {}
        self.put_down: set[bytes] = set()  # tasks that it let wait just now


@types.coroutine
def rest(seconds: float) -> Generator[float, None, None]:
    """Let others go on; time passes."""
    yield seconds


class World:
    """Runs processes one step at a time, in an order that the seed decides."""

    def __init__(self, plan: Plan, rng: Random, clock: ManualClock, *, verbose: bool) -> None:
        self.plan, self.rng, self.clock = plan, rng, clock
        self.now = 0
        self.calm = False
        self.steps = 0
        self.seen: Counter[str] = Counter()
        self.processes: list[Process] = []
        self._queue: list[tuple[int, float, int, Process, Coroutine[Any, None, None]]] = []
        self._count = 0
        self.verbose = verbose

    # ── processes ────────────────────────────────────────────────────────────────────────────

    def process(self, name: str) -> Process:
        born = Process(name, self.rng.choice(self.plan.paces))
        self.processes.append(born)
        return born

    def start(
        self, process: Process, thread: Coroutine[Any, None, None], after: float = 0.0
    ) -> None:
        self._count += 1
        at = self.now + round(after * SECOND)
        heapq.heappush(self._queue, (at, self.rng.random(), self._count, process, thread))

    def kill(self, process: Process, why: str) -> None:
        if process.alive:
            self.tell(process, f"✝ {why}")
            process.alive = False
            self.processes.remove(process)
            if process.reborn:
                process.reborn()

    def end(self, process: Process) -> None:
        """It went in peace."""
        self.kill(process, "ended")

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Everybody goes on until then."""
        horizon = self.now + round(seconds * SECOND)
        queue, rng = self._queue, self.rng
        while queue and queue[0][0] <= horizon and not until():
            at, _, n, process, thread = heapq.heappop(queue)
            if not process.alive:
                thread.close()
                continue
            if process.stopped_until > at:
                heapq.heappush(queue, (process.stopped_until, rng.random(), n, process, thread))
                continue
            self._move_to(at)
            self.steps += 1
            try:
                pause = thread.send(None)
            except StopIteration:
                continue
            except Crashed as crash:
                self.kill(process, str(crash))
                continue
            heapq.heappush(
                queue, (self.now + round(pause * SECOND), rng.random(), n, process, thread)
            )
        if not until():
            self._move_to(horizon)

    def close(self) -> None:
        for *_, thread in self._queue:
            thread.close()

    # ── time and chance ──────────────────────────────────────────────────────────────────────

    def _move_to(self, at: int) -> None:
        if at > self.now:
            self.clock.advance((at - self.now) / SECOND)
            self.now = at

    def chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def new_uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    def trouble(self, process: Process) -> float:
        """On the way to the database or back: seconds that it takes, unless worse happens."""
        plan, rng = self.plan, self.rng
        dice = rng.random()
        if dice < plan.crash:
            raise Crashed("crash")
        if dice < plan.crash + plan.stop:
            seconds = plan.lease * rng.uniform(0.3, 3.0)
            process.stopped_until = self.now + round(seconds * SECOND)
            self.tell(process, f"stopped for {seconds:.1f} s")
            self.sometimes("a process was stopped for longer than a lease", seconds > plan.lease)
        return rng.random() ** 3 * plan.latency

    # ── what is told ─────────────────────────────────────────────────────────────────────────

    def sometimes(self, what: str, happened: bool = True) -> None:
        """Something rare that some seed must reach."""
        if happened:
            self.seen[what] += 1

    def tell(self, process: Process | None, text: str) -> None:
        if self.verbose:
            name = process.name if process else "-"
            print(f"{self.now / SECOND:11.6f}  {name:<10} {text}")
