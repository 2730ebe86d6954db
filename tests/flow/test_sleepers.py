"""Many functions asleep: rows, and nothing else. All of them due at once: no worker drowns."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.sleeping import build, main
from tests.storm.ledger import peek
from tests.storm.processes import SPAWN
from tests.work.bench import Bench

MEGABYTE = 1024 * 1024
_PAGES = 64 * MEGABYTE  # SQLite's cache: it fills as the file grows, whatever its rows are
_BATCH = 5000


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "sleepers", [1000, pytest.param(100_000, marks=pytest.mark.long)], ids=["few", "all"]
)
def test_sleepers_take_no_memory_of_a_worker_and_all_wake_when_they_are_due(
    url: str, sleepers: int
) -> None:
    place = url.removeprefix("sqlite:///")
    asyncio.run(_dispatch(url, sleepers))
    worker = SPAWN.Process(target=main, args=(url,), daemon=True)
    worker.start()
    try:
        within = 120 + sleepers / 100
        _until(lambda: _asleep(place) >= sleepers // 10, within)
        before = _memory(worker.pid)
        _until(lambda: _asleep(place) == sleepers, within)
        asleep = _memory(worker.pid)
        _all_due(url)
        _until(lambda: _ended(place) == sleepers, within)
        after = _memory(worker.pid)
        worker.terminate()
        worker.join(100)
        assert worker.exitcode == 0
    finally:
        worker.kill()
        worker.join(60)
    (wrong,) = peek(place, "select count(*) from {s}outcome where state <> 'done'")
    assert int(wrong[0]) == 0
    # What a worker is given for its slots and what it takes ahead; 100,000 would be far more.
    pages = _PAGES if url.startswith("sqlite") else 0
    assert asleep - before < 48 * MEGABYTE + pages
    assert after - before < 96 * MEGABYTE + pages


async def _dispatch(url: str, sleepers: int) -> None:
    app, sleeper = build(url)
    async with app:
        for start in range(0, sleepers, _BATCH):
            some = range(start, min(start + _BATCH, sleepers))
            await app.dispatch_many([sleeper.call(i) for i in some])


def _memory(pid: int | None) -> int:
    """Bytes that it holds."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("how much memory a process holds is not told here")
    lines = status.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _asleep(place: str) -> int:
    (found,) = peek(place, "select count(*) from {s}later where waiting is not null")
    return int(found[0])


def _ended(place: str) -> int:
    return int(peek(place, "select count(*) from {s}outcome")[0][0])


def _all_due(url: str) -> None:
    """As if they had fallen asleep long ago."""

    async def move() -> None:
        bench = Bench(url)
        if bench.is_sqlite:
            bench._write("update step set recorded_at = 0")
            bench._write("update later set run_at = 0")
        else:
            bench._write("update holdfast.step set recorded_at = now() - interval '2 days'")
            bench._write("update holdfast.later set run_at = now() - interval '1 day'")

    asyncio.run(move())


def _until(reached: Callable[[], bool], within: float) -> None:
    deadline = time.monotonic() + within
    while not reached():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.1)
