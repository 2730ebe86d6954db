"""Four processes on one SQLite file: none starves, nothing is lost or doubled."""

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.ids import new_id
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Draft
from tests.stalls import measured
from tests.storm.ledger import assert_all_over
from tests.storm.processes import SPAWN, open_store, race

PROCESSES = 4
LEASE = timedelta(minutes=5)
DONE = Settlement(verdict=Verdict.DONE)


async def worker(me: int, place: str, start: Any) -> tuple[list[UUID], float]:
    """What it did, and which part of the time the machine left it."""
    store = open_store(place)
    done: list[UUID] = []
    lanes = list((await store.lanes()).lanes)
    await asyncio.to_thread(start.wait, 60)  # nobody is late
    began = time.monotonic()
    async with measured() as stalls:
        while True:
            answer = await store.claim(worker=me, lanes=lanes, want=10, lease=LEASE)
            if not answer.tasks and answer.contended is None:
                await store.close()
                return done, 1 - stalls.seconds / (time.monotonic() - began)
            assert not await store.settle([(task.lease, DONE) for task in answer.tasks])
            done += [task.lease.task for task in answer.tasks]


async def fill(place: str, tasks: int) -> None:
    store = open_store(place)
    await store.migrate()
    await store.enqueue([Draft(id=new_id(), type="noop") for _ in range(tasks)])
    await store.close()


def storm(place: str, tasks: int, within: float) -> None:
    asyncio.run(fill(place, tasks))
    start = SPAWN.Barrier(PROCESSES)
    each: list[tuple[Any, ...]] = [(me, place, start) for me in range(1, PROCESSES + 1)]
    done = race(worker, each, within=within)
    together = [id for ids, _ in done for id in ids]
    assert len(together) == len(set(together)) == tasks
    assert_all_over(place, tasks)
    shares = sorted((len(ids), round(part, 2)) for ids, part in done)
    fair = tasks / PROCESSES
    assert all(count >= part * fair / 4 for count, part in shares), f"one starved: {shares}"


def test_four_processes_share_one_file_fairly(sqlite_place: str) -> None:
    storm(sqlite_place, 4000, within=300)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_they_also_do_for_long(sqlite_place: str) -> None:
    storm(sqlite_place, 40_000, within=150)
