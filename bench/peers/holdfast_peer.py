"""Holdfast, its workers started by its own command."""

import asyncio
import os
import sys

from bench.peers import ledger
from holdfast import Holdfast

SETTINGS = (
    "lease 5s; fenced, with history; SQLite: synchronous FULL; PostgreSQL: NOTIFY; what is lost "
    "together a second time runs in processes of its own, so that one that kills its worker takes "
    "no other along"
)

app = Holdfast(os.environ.get("BENCH_URL"))


@app.durable(name="peers:noop", queue="bench")
async def noop() -> None:
    ledger.began()


@app.durable(name="peers:hold", queue="bench", max_tries=5)
async def hold(number: int) -> None:
    ledger.began(number)
    await asyncio.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    await app.__aenter__()


async def enqueue(task: str, numbers: list[int]) -> None:
    if len(numbers) == 1 and task == "noop":
        await app.dispatch(noop)
    elif task == "noop":
        await app.dispatch_many([noop.call()] * len(numbers))
    else:
        await app.dispatch_many([hold.call(number) for number in numbers])


def command(slots: int) -> list[str]:
    return [
        *(sys.executable, "-m", "holdfast", "worker", "--app", "bench.peers.holdfast_peer:app"),
        *("--concurrency", str(slots), "--lease", "5s", "--log-level", "error"),
    ]
