"""Five hundred keys, one at a time each, eight claimers: none over, none stuck, in order."""

import asyncio
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.ids import new_id
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Claimed, Draft
from tests.storm.ledger import assert_all_over, finished
from tests.storm.processes import SPAWN, open_store, race

KEYS, CLAIMERS = 500, 8
LEASE = timedelta(minutes=5)
DONE = Settlement(verdict=Verdict.DONE)


class Outside:
    """Who runs under each key, and which came last, as the workers themselves know."""

    def __init__(self) -> None:
        self.running = SPAWN.Array("i", KEYS)
        self.last = SPAWN.Array("i", [-1] * KEYS)
        self.over = SPAWN.Value("i", 0)
        self.astray = SPAWN.Value("i", 0)

    def start(self, tasks: list[Claimed]) -> None:
        with self.running.get_lock():
            for key, place in map(_work, tasks):
                self.running[key] += 1
                self.over.value += self.running[key] > 1
                self.astray.value += place != self.last[key] + 1
                self.last[key] = place

    def stop(self, tasks: list[Claimed]) -> None:
        with self.running.get_lock():
            for key, _ in map(_work, tasks):
                self.running[key] -= 1


def _work(task: Claimed) -> tuple[int, int]:
    key, place = msgspec.json.decode(task.payload)
    return key, place


async def claimer(me: int, place: str, outside: Outside, tasks: int) -> Counter[str]:
    chance, store, tally = random.Random(me), open_store(place), Counter[str]()
    lanes, after = list((await store.lanes()).lanes), None
    while True:
        answer = await store.claim(
            worker=me, lanes=lanes, want=chance.randint(1, 20), lease=LEASE, after=after
        )
        after = answer.contended
        if answer.tasks:
            outside.start(answer.tasks)
            await asyncio.sleep(chance.random() * 0.002)
            outside.stop(answer.tasks)
            tally["done"] += len(answer.tasks)
            assert not await store.settle([(task.lease, DONE) for task in answer.tasks])
        elif after is None:
            if finished(place) == tasks:
                await store.close()
                return tally
            await asyncio.sleep(0.002)


def storm(place: str, tasks: int, within: float) -> None:
    asyncio.run(fill(place, tasks))
    outside = Outside()
    each: list[tuple[Any, ...]] = [(me, place, outside, tasks) for me in range(1, CLAIMERS + 1)]
    tally = sum(race(claimer, each, within=within), Counter[str]())
    assert tally["done"] == tasks
    assert outside.over.value == 0, "two tasks of one key ran at once"
    assert outside.astray.value == 0, "a key's tasks did not run in order"
    assert_all_over(place, tasks)


async def fill(place: str, tasks: int) -> None:
    store = open_store(place)
    await store.migrate()
    await store.limit("type", "keyed", Limit(max_per_key=1))
    await store.enqueue(
        [
            Draft(
                id=new_id(),
                type="keyed",
                concurrency_key=f"key {n % KEYS}",
                payload=msgspec.json.encode((n % KEYS, n // KEYS)),
            )
            for n in range(tasks)
        ]
    )
    await store.close()


def test_one_task_of_a_key_runs_at_a_time_and_in_order(place: str) -> None:
    storm(place, 3000, within=300)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_keys_hold_in_a_long_storm(place: str) -> None:
    storm(place, 50_000, within=300)
