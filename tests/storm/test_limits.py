"""Eight processes behind shared limits, with people who count outside of the database."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import StoreUnreachable
from holdfast.ids import new_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Claimed, Draft, Failure, Lease
from tests.storm.ledger import assert_all_over, finished, peek
from tests.storm.processes import SPAWN, open_store, race

CLAIMERS = 8
LEASE = timedelta(minutes=5)  # whoever counts itself among those who run must hold on to it
SHORT = timedelta(seconds=0.3)
MAX_TRIES = 6
DONE = Settlement(verdict=Verdict.DONE, result=b"null")
RETRY = Settlement(
    verdict=Verdict.RETRY,
    delay=timedelta(milliseconds=20),
    failure=Failure(type="Again", message="again"),
)

# "shared" goes to two queues and has one gate; the queue "narrow" has another.
SHARED, NARROW = 0, 1
PLACES = [("shared", "wide"), ("shared", "narrow"), ("free", "wide")]
GATES = {("shared", "wide"): [SHARED], ("shared", "narrow"): [SHARED, NARROW]}


class Outside:
    """How many run behind each gate, as the workers themselves know."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = SPAWN.Array("i", 2)
        self.over = SPAWN.Value("i", 0)

    def count(self, tasks: list[Claimed], by: int) -> None:
        with self.running.get_lock():
            for task in tasks:
                for gate in GATES.get((task.lane.type, task.lane.queue), ()):
                    self.running[gate] += by
                    if self.running[gate] > self.limit:
                        self.over.value += 1


class Claimer:
    """Claims a few, works, settles; walks away now and then, and comes back as a zombie."""

    def __init__(self, me: int, place: str, outside: Outside, *, tidy: bool) -> None:
        self.me, self.place, self.outside, self.tidy = me, place, outside, tidy
        self.chance = random.Random(me)
        self.store: SqlStore = open_store(place)
        self.done: list[UUID] = []
        self.zombies: list[tuple[float, Lease]] = []
        self.tally: Counter[str] = Counter()
        self.after: int | None = None

    async def run(self, tasks: int) -> tuple[list[UUID], Counter[str]]:
        lanes = list((await self.store.lanes()).lanes)
        while finished(self.place) < tasks:
            for _ in range(20):
                await self.chores()
                await self.turn(lanes)
        await self.store.close()
        return self.done, self.tally

    async def chores(self) -> None:
        if not self.tidy:
            for recovered in await self.store.recover(50):
                self.tally[f"recovered to {recovered.status}"] += 1
            await self.store.promote(200)
        if self.zombies and time.monotonic() - self.zombies[0][0] > 3 * SHORT.total_seconds():
            _, lease = self.zombies.pop(0)
            await self.settle([(lease, DONE)], "zombie ")

    async def turn(self, lanes: list[int]) -> None:
        walks_away = not self.tidy and self.chance.random() < 0.03
        answer = await self.store.claim(
            worker=self.me,
            lanes=lanes,
            want=self.chance.randint(1, 8),
            lease=SHORT if walks_away else LEASE,
            after=self.after,
        )
        self.after = answer.contended
        if not answer.tasks:
            await self.empty_handed(answer.contended, answer.full)
            return
        if walks_away:
            self.zombies += [(time.monotonic(), task.lease) for task in answer.tasks]
            self.tally["abandoned"] += len(answer.tasks)
            return
        self.outside.count(answer.tasks, 1)
        await asyncio.sleep(self.chance.random() * 0.003)
        if self.chance.random() < 0.1:
            with contextlib.suppress(StoreUnreachable):  # a busy machine: no answer in time
                await self.store.renew([task.lease for task in answer.tasks], LEASE)
        self.outside.count(answer.tasks, -1)
        await self.finish(answer.tasks)

    async def empty_handed(self, contended: int | None, full: bool) -> None:
        self.tally["empty"] += 1
        if contended is not None:
            return
        # In a tidy storm nothing comes into the lanes: what stands there now stood there before.
        if self.tidy and not full and peek(self.place, "select count(*) from {s}ready")[0][0]:
            self.tally["silent"] += 1
        await asyncio.sleep(0.001)

    async def finish(self, tasks: list[Claimed]) -> None:
        batch = []
        for task in tasks:
            again = not self.tidy and self.chance.random() < 0.1
            batch.append((task.lease, RETRY if again else DONE))
        self.chance.shuffle(batch)
        await self.settle(batch)

    async def settle(self, batch: list[tuple[Lease, Settlement]], prefix: str = "") -> None:
        refused = await self.store.settle(batch)
        accepted = [(lease, s) for lease, s in batch if lease.task not in refused]
        self.done += [lease.task for lease, s in accepted if s is DONE]
        self.tally[f"{prefix}accepted"] += len(accepted)
        self.tally[f"{prefix}refused"] += len(refused)


async def claimer(
    me: int, place: str, outside: Outside, tasks: int, tidy: bool
) -> tuple[list[UUID], Counter[str]]:
    return await Claimer(me, place, outside, tidy=tidy).run(tasks)


async def sampler(place: str, limit: int, tasks: int) -> tuple[int, int]:
    """Looks at the leases themselves: how often, and how often there were too many."""
    store = open_store(place)
    samples = over = 0
    while finished(place) < tasks:
        for _ in range(20):
            running = Counter((lease.type, lease.queue) for lease in await store.leases())
            shared = running["shared", "wide"] + running["shared", "narrow"]
            samples, over = (
                samples + 1,
                over + (shared > limit or running["shared", "narrow"] > limit),
            )
            await asyncio.sleep(0.002)
    await store.close()
    return samples, over


async def everyone(role: str, *args: Any) -> Any:
    return await (claimer(*args) if role == "claimer" else sampler(*args))


async def fill(place: str, limit: int, tasks: int) -> None:
    store = open_store(place)
    await store.migrate()
    await store.limit("type", "shared", Limit(max_running=limit))
    await store.limit("queue", "narrow", Limit(max_running=limit))
    drafts = [
        Draft(id=new_id(), type=type, queue=queue, max_tries=MAX_TRIES)
        for type, queue in (PLACES * tasks)[:tasks]
    ]
    await store.enqueue(drafts)
    await store.close()


def storm(place: str, limit: int, tasks: int, *, tidy: bool = False, within: float = 300) -> Any:
    asyncio.run(fill(place, limit, tasks))
    outside = Outside(limit)
    each: list[tuple[Any, ...]] = [
        ("claimer", me, place, outside, tasks, tidy) for me in range(1, CLAIMERS + 1)
    ]
    answers = race(everyone, [*each, ("sampler", place, limit, tasks)], within=within)
    samples, over = next(a for a in answers if isinstance(a[0], int))
    found = [a for a in answers if not isinstance(a[0], int)]
    tally = sum((tally for _, tally in found), Counter[str]())
    done = [id for ids, _ in found for id in ids]
    assert outside.over.value == 0, "more ran at once than the limit allows"
    assert over == 0, f"{over} of {samples} samples saw more leases than the limit"
    assert samples > 10
    assert len(done) == len(set(done)), "a task was done twice"
    assert_all_over(place, tasks)
    return tally


def test_limits_hold_while_workers_vanish_and_come_back(place: str) -> None:
    tally = storm(place, limit=5, tasks=1500)
    assert tally["abandoned"] > 0
    assert tally["zombie refused"] > 0


def test_a_wider_limit_holds_too(postgres_place: str) -> None:
    assert storm(postgres_place, limit=20, tasks=1500)["abandoned"] > 0


def test_an_empty_claim_with_work_waiting_says_why(place: str) -> None:
    tally = storm(place, limit=5, tasks=1000, tidy=True)
    assert tally["silent"] == 0
    assert tally["empty"] > 0


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("limit", [5, 20])
def test_limits_hold_in_a_long_storm(place: str, limit: int) -> None:
    assert storm(place, limit=limit, tasks=20_000, within=300)["abandoned"] > 100
