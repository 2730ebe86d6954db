"""The work that is measured, through the store as a worker uses it."""

import asyncio
import time
from datetime import timedelta

from holdfast.ids import new_id, new_worker_id
from holdfast.store import Store
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Draft

__all__ = ["PAYLOAD", "claim_times", "drafts", "drain", "fill", "one_by_one"]

BATCH = 500
LEASE = timedelta(minutes=5)
PAYLOAD = b'{"args":[1,2,3],"kwargs":{"user":"abcdefgh","x":12345},"pad":"' + b"a" * 40 + b'"}'
DONE = Settlement(verdict=Verdict.DONE, result=b"null")


def drafts(count: int) -> list[Draft]:
    return [Draft(id=new_id(), type="app:noop", payload=PAYLOAD) for _ in range(count)]


async def fill(store: Store, count: int) -> None:
    for start in range(0, count, 20_000):
        await store.enqueue(drafts(min(20_000, count - start)))


async def drain(store: Store, count: int, in_flight: int = 2) -> float:
    """Claim and settle `count` no-op tasks in batches; tasks per second.

    A worker claims its next batch while the last one is written: two are in flight.
    """
    lanes = (await store.lanes()).lanes
    worker, done = new_worker_id(), 0

    async def cycle() -> None:
        nonlocal done
        while done < count:
            answer = await store.claim(worker=worker, lanes=list(lanes), want=BATCH, lease=LEASE)
            refused = await store.settle([(task.lease, DONE) for task in answer.tasks])
            assert not refused
            done += len(answer.tasks)

    start = time.perf_counter()
    await asyncio.gather(*(cycle() for _ in range(in_flight)))
    assert done == count
    return done / (time.perf_counter() - start)


async def one_by_one(store: Store, callers: int, seconds: float = 1.5) -> float:
    """Callers that each await one enqueue after the other; tasks per second."""
    start, count = time.perf_counter(), 0

    async def caller() -> None:
        nonlocal count
        while time.perf_counter() - start < seconds:
            await store.enqueue(drafts(1))
            count += 1

    await asyncio.gather(*(caller() for _ in range(callers)))
    return count / (time.perf_counter() - start)


async def claim_times(stores: list[Store], rounds: int = 40) -> list[list[float]]:
    """Seconds that a claim of 100 takes, on each store in turn."""
    times: list[list[float]] = [[] for _ in stores]
    lanes = [list((await store.lanes()).lanes) for store in stores]
    for _ in range(rounds):
        for number, store in enumerate(stores):
            start = time.perf_counter()
            answer = await store.claim(
                worker=1, lanes=lanes[number], want=100, lease=LEASE, durable=True
            )
            times[number].append(time.perf_counter() - start)
            assert len(answer.tasks) == 100
            await store.settle([(task.lease, DONE) for task in answer.tasks])
    return times
