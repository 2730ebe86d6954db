"""Many hands, some of which are struck down; and what the tables and ledgers say afterwards."""

import asyncio
import math
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast.function import Call
from tests.storm.hand import Hired, build, main
from tests.storm.ledger import finished, peek
from tests.storm.processes import SPAWN


class Hand:
    """One worker process and its ledger."""

    def __init__(self, hired: Hired) -> None:
        self.name, self.ledger = hired.name, Path(hired.ledger)
        self.ledger.touch()
        self.struck: float | None = None
        self.out: list[tuple[float, float]] = []  # when it could not be at work, from and until
        self._alarm: threading.Timer | None = None
        self.process = SPAWN.Process(target=main, args=(hired,), daemon=True)
        self.process.start()

    @property
    def works(self) -> bool:
        """Whether it has begun something that it has not settled yet."""
        with self.ledger.open("rb") as ledger:
            ledger.seek(max(ledger.seek(0, os.SEEK_END) - 4000, 0))
            lines = ledger.read().decode().splitlines()[1:]
        begun = {line[2:38] for line in lines if line.startswith("+")}
        return bool(begun - {line[2:38] for line in lines if line[:1] in "=!"})

    def kill(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self.struck = time.time()
        self.out.append((self.struck, math.inf))
        self.process.kill()
        self.process.join(60)

    def stop(self, seconds: float) -> None:
        """Stopped inside a write it would hold up everyone on SQLite, us too: hence the alarm."""
        pid = self.process.pid
        assert pid is not None
        self.struck = time.time()
        self.out.append((self.struck, self.struck + seconds))
        os.kill(pid, signal.SIGSTOP)
        self._alarm = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
        self._alarm.start()

    @property
    def is_stopped(self) -> bool:
        return self._alarm is not None and self._alarm.is_alive()

    def terminate(self, within: float = 100.0) -> None:
        """Ask it to drain; it must come to its end by itself, without a fault."""
        if self._alarm:
            self._alarm.join()
        self.out.append((time.time(), math.inf))
        self.process.terminate()
        self.process.join(within)
        assert self.process.exitcode == 0, f"{self.name} ended with {self.process.exitcode}"


class Weather(threading.Thread):
    """How long this machine stands still, its disk included: which no worker is to be blamed for.
    `worst` is the longest time in one go, `lost` all of it; in seconds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.worst = self.lost = 0.0
        self.over = threading.Event()
        self._path = folder / "weather"

    def run(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            while not self.over.is_set():
                began = time.monotonic()
                time.sleep(0.02)
                file.write(b".")
                os.fsync(file.fileno())
                late = time.monotonic() - began - 0.1
                self.worst, self.lost = max(self.worst, late), self.lost + max(late, 0.0)


class Fleet:
    """`hands` at work at any time, on one database."""

    def __init__(self, url: str, folder: Path, *, hands: int = 4, **hired: Any) -> None:
        self.url, self.place = url, url.removeprefix("sqlite:///")
        self.chance = random.Random(1)
        self.accepted: list[UUID] = []
        self.all: list[Hand] = []
        self.at_work: list[Hand] = []
        self.left: list[int] = []  # leases that each drain left behind
        self.weather = Weather(folder)
        self._folder = folder
        self._hands = hands
        self._hired = hired

    def __enter__(self) -> "Fleet":
        self.weather.start()
        return self

    def __exit__(self, *_: object) -> None:
        for hand in self.all:
            if hand.process.is_alive():
                hand.kill()
        self.weather.over.set()
        self.weather.join()

    def hire(self, **more: Any) -> Hand:
        number = len(self.all)
        hired = Hired(
            url=self.url,
            name=f"hand-{number}",
            ledger=str(self._folder / f"ledger-{number}"),
            **self._hired | more,
        )
        hand = Hand(hired)
        self.all.append(hand)
        self.at_work.append(hand)
        return hand

    def fill_up(self) -> None:
        self.at_work = [hand for hand in self.at_work if hand.process.is_alive()]
        while len(self.at_work) < self._hands:
            self.hire()

    def dispatch(self, calls: Any) -> list[UUID]:
        """`calls(functions)` makes the calls; acknowledged ids are kept here, outside."""

        async def feed() -> list[UUID]:
            app, functions = build(None, self.url)
            async with app:
                made: list[Call[Any]] = calls(functions)
                return [task.id for task in await app.dispatch_many(made)]

        ids = asyncio.run(feed())
        self.accepted += ids
        return ids

    def feed(self, count: int) -> None:
        """A mixture: mostly quick, some slow, some in threads, some behind limits."""
        roll = self.chance.random

        def calls(functions: dict[str, Any]) -> list[Call[Any]]:
            made = []
            for _ in range(count):
                seconds = 0.4 if roll() < 0.01 else 0.02 * roll()
                name = self.chance.choices(
                    ("work", "thread", "limited", "keyed"), (70, 10, 10, 10)
                )[0]
                keys = (self.chance.randrange(20),) if name == "keyed" else ()
                made.append(functions[name].call(seconds, *keys))
            return made

        self.dispatch(calls)

    def someone_at_work(self) -> Hand:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = [h for h in self.at_work if not h.is_stopped and h.works]
            if found:
                return self.chance.choice(found)
            if finished(self.place) == len(self.accepted):
                self.feed(50)
            time.sleep(0.005)
        raise TimeoutError("no worker is at work")

    def holder(self) -> Hand:
        """Who holds something."""
        deadline = time.monotonic() + 60
        held = "select k.name from {s}lease e join {s}worker k on k.id = e.worker"
        while time.monotonic() < deadline:
            names = {name for (name,) in peek(self.place, held)}
            if found := [hand for hand in self.at_work if hand.name in names]:
                return found[0]
            time.sleep(0.005)
        raise TimeoutError("nobody holds anything")

    def wait_for_all_hands(self) -> None:
        """Until each of them has begun."""
        deadline = time.monotonic() + 60
        wanted = {hand.name for hand in self.at_work}
        while not wanted <= {name for (name,) in peek(self.place, "select name from {s}worker")}:
            assert time.monotonic() < deadline, "not all workers have begun"
            time.sleep(0.01)

    def strike(self, fault: str, lease: float) -> None:
        hand = self.someone_at_work()
        match fault:
            case "kill":
                hand.kill()
            case "stop":
                hand.stop(lease * 1.7)
                if not self.url.startswith("postgresql:"):  # inside a write it stops everyone
                    for other in self.all:
                        other.out.append(hand.out[-1])
            case "drain":
                before = self.weather.lost
                hand.terminate()
                left = self.left_by(hand)
                # What it could not renew in time, on a machine that stood still, a worker lets go
                # of, drained or not.
                if self.weather.lost - before < lease / 5:
                    self.left.append(left)
        self.fill_up()

    def left_by(self, hand: Hand) -> int:
        """How many leases it still has."""

        async def ask() -> int:
            app, _ = build(None, self.url)
            async with app:
                views = await app.active_leases(limit=500)
            return sum(view.worker_name == hand.name for view in views)

        return asyncio.run(ask())

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The database goes down, and nobody can take anything back until it is up again, and he
        has noticed."""
        began = time.time()
        yield
        for hand in self.all:
            hand.out.append((began, time.time() + 1.0))

    def wait_for_the_end(self, within: float) -> None:
        deadline = time.monotonic() + within
        while (done := finished(self.place)) < len(self.accepted):
            assert time.monotonic() < deadline, f"only {done} of {len(self.accepted)} ended"
            self.fill_up()
            time.sleep(0.05)

    def go_home(self) -> None:
        for hand in self.at_work:
            hand.terminate()

    def lines(self, mark: str) -> Iterator[tuple[str, int]]:
        for hand in self.all:
            for line in hand.ledger.read_text().splitlines():
                if line.startswith(mark):
                    _, id, fence, _ = line.split()
                    yield id, int(fence)

    def judge(self) -> None:
        """None lost, none doubled, and the end that stands is the one that was accepted."""
        rows = peek(self.place, "select id, fence, state, result from {s}outcome")
        outcomes = {text(id): (fence, state, result) for id, fence, state, result in rows}
        assert outcomes.keys() == {str(id) for id in self.accepted}, "a task was lost"
        # Not all of that can be seen from here: but it is rare.
        left = sorted(self.left)
        assert not any(left[: len(left) // 2 + 1]), f"drains left {left} behind"
        written = list(self.lines("="))
        doubled = [id for id, n in Counter(id for id, _ in written).items() if n > 1]
        assert not doubled, "done twice"
        assert all(outcomes[id][0] == fence for id, fence in written), "another's end stands"
        begun = list(self.lines("+"))
        assert len(begun) == len(set(begun)), "one fence was granted twice"
        for fence, state, result in outcomes.values():
            if state == "done":
                assert int(bytes(result)) == fence, "the result is not of the attempt that ended it"

    def recoveries(self, lease: float, sweep: float) -> "Recoveries":
        """What became of all that the victims held when they were struck."""
        struck = {hand.name: hand.struck for hand in self.all if hand.struck}
        shifts = self._shifts()
        names = dict(peek(self.place, "select id, name from {s}worker"))
        attempts = peek(
            self.place,
            "select id, fence, worker, ended, started_at, ended_at from {s}attempt "
            "union all select id, fence, worker, 'end', started_at, finished_at from {s}outcome",
        )
        starts: dict[str, list[tuple[int, Any]]] = {}
        for id, fence, _, _, started, _ in attempts:
            if started is not None:
                starts.setdefault(text(id), []).append((fence, started))
        found = Recoveries()
        for id, fence, worker, ended, started, over in attempts:
            at = struck.get(names.get(worker, ""))
            if ended != "lost" or at is None or not seconds_of(started) < at < seconds_of(over):
                continue
            later = sorted(start for start in starts[text(id)] if start[0] > fence)
            found.back.append(seconds_of(over) - at)
            found.again += [seconds_of(start) - at for _, start in later[:1]]
            if (promised := _swept(shifts, at + lease, sweep)) is not None:
                found.late.append(seconds_of(over) - promised)
                found.late_again += [seconds_of(start) - promised for _, start in later[:1]]
        return found

    def _shifts(self) -> list[tuple[float, float]]:
        """When each worker was there, from and until."""
        began = dict(peek(self.place, "select name, started_at from {s}worker"))
        found = []
        for hand in self.all:
            since = seconds_of(began[hand.name]) if hand.name in began else math.inf
            for gone, again in [*sorted(hand.out), (math.inf, math.inf)]:
                if since < gone:
                    found.append((since, gone))
                since = max(since, again)
        return found


@dataclass
class Recoveries:
    """Seconds from a strike until what its victim held was given back, and granted again; and by
    how much each was later than some worker that was there must have swept. What was lost in
    company twice waits for a worker that is empty, and all for a free slot: to be granted takes
    longer."""

    back: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    late_again: list[float] = field(default_factory=list)


def _swept(shifts: list[tuple[float, float]], lapsed: float, sweep: float) -> float | None:
    """By when somebody must have swept: who was there for that long after it had lapsed."""
    by = [max(since, lapsed) + sweep for since, gone in shifts if max(since, lapsed) + sweep < gone]
    return min(by, default=None)


def histogram(title: str, seconds: list[float], step: float = 0.25) -> None:
    counts = Counter(math.floor(one / step) for one in seconds)
    print(f"\n{title}: {len(seconds)}, longest {max(seconds, default=0):.2f} s")
    for place in sorted(counts):
        print(f"  {place * step:5.2f} s {'#' * min(60, counts[place])} {counts[place]}")


def text(id: object) -> str:
    return str(UUID(bytes=id) if isinstance(id, bytes) else id)


def seconds_of(moment: Any) -> float:
    return moment / 1_000_000 if isinstance(moment, int) else float(moment.timestamp())
