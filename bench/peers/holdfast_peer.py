"""Holdfast: `python -m bench.peers.holdfast_peer SLOTS` is one worker."""

import asyncio
import os
import sys

import uvloop

from bench.peers import ledger
from holdfast import Holdfast, durable

SETTINGS = (
    "lease 5s; fenced, with history; SQLite: synchronous FULL; PostgreSQL: NOTIFY; what was lost "
    "together runs again one by one, so that one that kills its worker takes no other along"
)

app: Holdfast


@durable(name="peers:noop", queue="bench")
async def noop() -> None:
    ledger.began()


@durable(name="peers:hold", queue="bench", max_tries=5)
async def hold(number: int) -> None:
    ledger.began(number)
    await asyncio.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    global app
    app = Holdfast(url)
    await app.__aenter__()


async def enqueue(task: str, numbers: list[int]) -> None:
    if len(numbers) == 1 and task == "noop":
        await app.dispatch(noop)
    elif task == "noop":
        await app.dispatch_many([noop.call()] * len(numbers))
    else:
        await app.dispatch_many([hold.call(number) for number in numbers])


def command(slots: int) -> list[str]:
    return [sys.executable, "-m", "bench.peers.holdfast_peer", str(slots)]


async def work(slots: int) -> None:
    async with Holdfast(os.environ["BENCH_URL"]) as served:
        await served.serve(max_concurrency=slots, lease_duration="5s")


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))
