"""Workers are killed and stopped at random while they hold leases. The figure to hold: 100,000
tasks, 200 kill -9, 40 SIGSTOP longer than the lease: none lost, no outcome twice."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.ids import new_id
from holdfast.tasks.task import Draft
from tests.storm.ledger import assert_all_over, finished, peek
from tests.storm.processes import open_store

WORKERS = 4
REPOSITORY = Path(__file__).parents[2]


class Alarm(threading.Thread):
    """Lets a stopped process go on after some seconds; after some more where it is too early."""

    def __init__(self, seconds: float, pid: int) -> None:
        super().__init__(daemon=True)
        self._seconds, self._pid = seconds, pid
        self._over = threading.Event()
        self.wait_for: Callable[[], bool] = lambda: False

    def run(self) -> None:
        for n in range(6):
            if self._over.wait(self._seconds if n == 0 else self._seconds / 2):
                return
            if not self.wait_for():
                break
        os.kill(self._pid, signal.SIGCONT)

    def cancel(self) -> None:
        self._over.set()


class Victim:
    """One worker process and its ledger."""

    def __init__(self, folder: Path, number: int, place: str, lease: float) -> None:
        self.ledger = folder / f"ledger-{number}"
        self.ledger.touch()
        self._alarm: Alarm | None = None
        self._written_then = -1
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.storm.doomed"),
                *(place, str(self.ledger), str(folder / "stop"), str(lease), "0.01"),
            ],
            cwd=REPOSITORY,
        )

    @property
    def works_on(self) -> str | None:
        """A task that it has started and not settled yet."""
        with self.ledger.open("rb") as ledger:
            ledger.seek(max(ledger.seek(0, os.SEEK_END) - 80, 0))
            last = ledger.read().decode().splitlines()[-1:]
        return last[0].split()[1] if last and last[0].startswith("+") else None

    @property
    def spared(self) -> bool:
        """Whoever was stopped is left alone until it has come back and heard that it is late."""
        return self._written_then == self.ledger.stat().st_size

    def kill(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._process.kill()
        self._process.wait(60)

    def stop(self, seconds: float) -> None:
        """Stopped inside a write it would hold up everyone on SQLite, us too: hence the alarm."""
        os.kill(self._process.pid, signal.SIGSTOP)
        self._written_then = self.ledger.stat().st_size
        self._alarm = Alarm(seconds, self._process.pid)
        self._alarm.start()

    def go_on(self) -> None:
        assert self._alarm is not None
        self._alarm.cancel()
        self._written_then = -1
        os.kill(self._process.pid, signal.SIGCONT)

    def until_gone(self, still_there: Callable[[], bool]) -> None:
        """It goes on when somebody has taken back what it held, however slow they are."""
        assert self._alarm is not None
        self._alarm.wait_for = still_there

    def wake(self) -> None:
        if self._alarm:
            self._alarm.join()

    def end(self, within: float) -> int:
        try:
            return self._process.wait(within)
        finally:
            self._process.kill()
            self._process.wait(60)


class Storm:
    """Feeds the queue and strikes, in turn, so that no strike comes after the work."""

    def __init__(self, place: str, folder: Path, lease: float, tasks: int, faults: int) -> None:
        self.place, self.folder, self.lease = place, folder, lease
        self.chance = random.Random(1)
        self.started = 0
        self.victims: list[Victim] = []
        self.ledgers: list[Path] = []
        self.accepted: list[str] = []
        self._portion = tasks // (2 * faults)  # the other half is fed where all is done too soon
        self._tasks = tasks

    def feed(self, *, all: bool = False) -> None:
        left = self._tasks - len(self.accepted)
        count = left if all else min(self._portion, left)
        drafts = [Draft(id=new_id(), type="work", max_tries=1000) for _ in range(count)]

        async def enqueue() -> None:
            store = open_store(self.place)
            self.accepted += [str(id) for id in await store.enqueue(drafts)]
            await store.close()

        asyncio.run(enqueue())

    def hire(self) -> None:
        victim = Victim(self.folder, self.started, self.place, self.lease)
        self.started += 1
        self.victims.append(victim)
        self.ledgers.append(victim.ledger)

    def strike(self, fault: str) -> None:
        victim = self.someone_at_work()
        if fault == "stop":
            victim.stop(self.lease * 1.5)
            while not self.still_holds(victim):  # its settle was on the way: try another
                victim.go_on()
                victim = self.someone_at_work()
                victim.stop(self.lease * 1.5)
            victim.until_gone(partial(self.holds, victim))
        else:
            self.victims.remove(victim)
            victim.kill()
        self.hire()

    def someone_at_work(self) -> Victim:
        for _ in range(60):
            for _ in range(500):
                found = [v for v in self.victims if not v.spared and v.works_on]
                if found:
                    return self.chance.choice(found)
                time.sleep(0.001)
            self.feed()
        raise TimeoutError("no worker is at work")

    def still_holds(self, victim: Victim) -> bool:
        time.sleep(0.05)
        return self.holds(victim)

    def holds(self, victim: Victim) -> bool:
        leases = {_text(id) for (id,) in peek(self.place, "select id from {s}lease")}
        return victim.works_on in leases

    def kill_all(self) -> None:
        for victim in self.victims:
            victim.kill()

    def wait_for_the_end(self, within: float) -> None:
        deadline = time.monotonic() + within
        while finished(self.place) < len(self.accepted):
            assert time.monotonic() < deadline, "the work does not come to its end"
            time.sleep(0.05)
        for victim in self.victims:
            victim.wake()
        (self.folder / "stop").touch()
        assert [victim.end(100) for victim in self.victims] == [0] * len(self.victims)

    def lines(self, mark: str) -> Iterator[tuple[str, int]]:
        for ledger in self.ledgers:
            for line in ledger.read_text().splitlines():
                if line.startswith(mark):
                    _, id, fence = line.split()
                    yield id, int(fence)


def rage(place: str, folder: Path, *, tasks: int, kills: int, stops: int, lease: float) -> Storm:
    storm = Storm(place, folder, lease, tasks, kills + stops)
    faults = ["kill"] * kills + ["stop"] * stops
    storm.chance.shuffle(faults)

    async def prepare() -> None:
        store = open_store(place)
        await store.migrate()
        await store.close()

    asyncio.run(prepare())
    storm.feed()
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(storm.kill_all)
        for _ in range(WORKERS):
            storm.hire()
        for fault in faults:
            storm.strike(fault)
            storm.feed()
        storm.feed(all=True)
        storm.wait_for_the_end(within=200 + 20 * lease)
        cleanup.pop_all()
    return storm


def judge(storm: Storm, tasks: int) -> None:
    assert len(storm.accepted) == len(set(storm.accepted)) == tasks
    assert_all_over(storm.place, tasks)
    rows = peek(storm.place, "select id, fence, state from {s}outcome")
    outcomes = {_text(id): (fence, state) for id, fence, state in rows}
    assert outcomes.keys() == set(storm.accepted), "a task was lost"
    assert {state for _, state in outcomes.values()} == {"done"}
    written = list(storm.lines("="))
    assert not [id for id, n in Counter(id for id, _ in written).items() if n > 1], "done twice"
    assert all(outcomes[id][0] == fence for id, fence in written), "another attempt's end stands"
    assert len(set(storm.lines("+"))) == len(list(storm.lines("+"))), "one fence was granted twice"


def _text(id: object) -> str:
    return str(UUID(bytes=id) if isinstance(id, bytes) else id)


def test_killed_and_stopped_workers_lose_and_double_nothing(place: str, tmp_path: Path) -> None:
    storm = rage(place, tmp_path, tasks=3000, kills=10, stops=3, lease=1.0)
    judge(storm, 3000)
    assert any(storm.lines("!")), "nobody came back to find its lease gone"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_figure_to_hold(place: str, tmp_path: Path) -> None:
    storm = rage(place, tmp_path, tasks=100_000, kills=200, stops=40, lease=2.0)
    judge(storm, 100_000)
