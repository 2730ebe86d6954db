"""PgQueuer: `python -m bench.peers.pgqueuer_peer SLOTS` is one worker."""

import asyncio
import os
import sys
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers import ledger

SETTINGS = (
    "all tables logged (durable); asyncpg, uvloop; batch = slots; heartbeat_timeout 5 s, "
    "dequeue_timeout 1 s (30 by default: an idle worker looks for abandoned jobs that often)"
)

queries: Queries


async def setup(url: str) -> None:
    global queries
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()


async def enqueue(task: str, numbers: list[int]) -> None:
    count = len(numbers)
    await queries.enqueue([task] * count, [b"%d" % number for number in numbers], [0] * count)


def command(slots: int) -> list[str]:
    return [sys.executable, "-m", "bench.peers.pgqueuer_peer", str(slots)]


async def work(slots: int) -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["BENCH_URL"])))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        ledger.began()

    @queuer.entrypoint("hold")
    async def hold(job: Job) -> None:
        number = int(job.payload or b"0")
        ledger.began(number)
        await asyncio.sleep(1)
        ledger.ended(number)

    await queuer.run(
        batch_size=slots,
        heartbeat_timeout=timedelta(seconds=5),
        dequeue_timeout=timedelta(seconds=1),
    )


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))
