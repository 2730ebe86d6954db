"""Huey, on Redis or SQLite."""

import os
import sys
import time

from huey import Huey, RedisHuey, SqliteHuey

from bench.peers import ledger

SETTINGS = (
    "threads; Redis: blocking pop; SQLite: fsync on, polled every 10 ms without back-off; a task "
    "is taken off the queue before it runs, and Huey has no way to keep it"
)


def huey_at(url: str) -> Huey:
    if url.startswith("redis"):
        return RedisHuey("bench", url=url, results=False)
    path = url.removeprefix("sqlite:///")
    return SqliteHuey("bench", filename=path, fsync=True, timeout=30, results=False)


huey = huey_at(os.environ["BENCH_URL"])


@huey.task(name="noop")
def noop() -> None:
    ledger.began()


@huey.task(name="hold", retries=3)
def hold(number: int) -> None:
    ledger.began(number)
    time.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    len(huey)


async def enqueue(task: str, numbers: list[int]) -> None:
    """One task at a time: Huey has no call for many."""
    for number in numbers:
        if task == "noop":
            noop()
        else:
            hold(number)


def command(slots: int) -> list[str]:
    consumer = "from huey.bin.huey_consumer import consumer_main; consumer_main()"
    return [
        *(sys.executable, "-c", consumer, "bench.peers.huey_peer.huey"),
        *("--worker-type", "thread", "--workers", str(slots), "--no-periodic", "--quiet"),
        *("--delay", "0.01", "--max-delay", "0.01", "--backoff", "1"),
    ]
