"""Workers are killed with -9 in the middle of durable functions: a recorded step never runs again.
The figure to hold: 500 functions of 10 steps, 50 kills."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.flow.stormy import STEPS, build, main
from tests.storm.ledger import assert_all_over, finished, peek
from tests.storm.processes import SPAWN

RESULT = sum(range(STEPS)) + 100


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("functions", "kills"),
    [(60, 6), pytest.param(500, 50, marks=pytest.mark.long)],
    ids=["short", "whole"],
)
def test_recorded_steps_outlive_every_kill(
    url: str, tmp_path: Path, functions: int, kills: int
) -> None:
    ledger, place = tmp_path / "ledger", url.removeprefix("sqlite:///")
    ledger.touch()
    tasks = asyncio.run(_dispatch(url, functions))
    chance, workers = random.Random(1), [_hire(url, ledger) for _ in range(3)]
    try:
        for _ in range(kills):
            _until_more(ledger, functions * STEPS // (2 * kills))
            struck = workers.pop(chance.randrange(len(workers)))
            struck.kill()
            struck.join(60)
            workers.append(_hire(url, ledger))
        deadline = time.monotonic() + 300
        while finished(place) < 2 * functions:
            assert time.monotonic() < deadline, "the work does not come to its end"
            time.sleep(0.05)
        for worker in workers:
            worker.terminate()
            worker.join(100)
            assert worker.exitcode == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.join(60)
    assert_all_over(place, 2 * functions)
    assert asyncio.run(_results(url, tasks)) == [RESULT] * functions
    _check(ledger, place, functions)


def _check(ledger: Path, place: str, functions: int) -> None:
    """By the fence of each attempt: once a step is recorded, no later attempt has run it."""
    rows = peek(place, "select id, name, fence from {s}step where kind = 'step'")
    recorded = {(_uuid(id), name.removeprefix("step n")): fence for id, name, fence in rows}
    assert len(recorded) == functions * STEPS
    ran = [line.split() for line in ledger.read_text().splitlines()]
    again = [one for one in ran if int(one[2]) > recorded[UUID(one[0]), one[1]]]
    assert not again
    assert len({(task, step) for task, step, _ in ran}) == len(recorded)


def _hire(url: str, ledger: Path) -> Any:
    worker = SPAWN.Process(target=main, args=(url, str(ledger), 1.5), daemon=True)
    worker.start()
    return worker


def _until_more(ledger: Path, lines: int) -> None:
    """Until work goes on; if all is done, never mind."""
    size = ledger.stat().st_size
    deadline = time.monotonic() + 60
    while ledger.stat().st_size < size + 40 * lines and time.monotonic() < deadline:
        time.sleep(0.005)


def _uuid(id: Any) -> UUID:
    return UUID(bytes=id) if isinstance(id, bytes) else UUID(str(id))


async def _dispatch(url: str, count: int) -> list[UUID]:
    app, ten = build(url)
    async with app:
        return [task.id for task in await app.dispatch_many([ten.call() for _ in range(count)])]


async def _results(url: str, tasks: list[UUID]) -> list[Any]:
    app, _ = build(url)
    async with app:
        ends = [await app.wait_for(task, timeout=60) for task in tasks]
        return [int(end.result or b"0") for end in ends]
