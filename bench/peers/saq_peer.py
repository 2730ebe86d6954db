"""SAQ, on PostgreSQL or Redis: `python -m bench.peers.saq_peer SLOTS` is one worker."""

import asyncio
import os
import sys
from typing import Any

import uvloop
from saq import Job, Queue, Worker

from bench.peers import ledger

SETTINGS = "timeout 5 s (after which a job counts as stuck), retries 3, sweep every second; uvloop"

queue: Queue


async def noop(ctx: dict[str, Any]) -> None:
    ledger.began()


async def hold(ctx: dict[str, Any], *, number: int) -> None:
    ledger.began(number)
    await asyncio.sleep(1)
    ledger.ended(number)


def queue_at(url: str) -> Queue:
    return Queue.from_url(url, name="bench")


async def setup(url: str) -> None:
    global queue
    queue = queue_at(url)
    await queue.connect()


async def enqueue(task: str, numbers: list[int]) -> None:
    """SAQ has no call for many: several at once is the best it can."""
    for start in range(0, len(numbers), 20):
        await asyncio.gather(*(_enqueue(task, n) for n in numbers[start : start + 20]))


async def _enqueue(task: str, number: int) -> None:
    kwargs = {"number": number} if task == "hold" else {}
    await queue.enqueue(Job(function=task, kwargs=kwargs, timeout=5, retries=3))


def command(slots: int) -> list[str]:
    return [sys.executable, "-m", "bench.peers.saq_peer", str(slots)]


async def work(slots: int) -> None:
    served = queue_at(os.environ["BENCH_URL"])
    await served.connect()
    await Worker(
        served,
        functions=[("noop", noop), ("hold", hold)],
        concurrency=slots,
        timers={"sweep": 1},
    ).start()


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))
