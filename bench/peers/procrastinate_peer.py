"""Procrastinate: `python -m bench.peers.procrastinate_peer SLOTS` is one worker."""

import asyncio
import os
import sys

import uvloop
from procrastinate import App, PsycopgConnector

from bench.peers import ledger

SETTINGS = (
    "LISTEN/NOTIFY; heartbeat 1 s, stalled after 5 s; the documented periodic task that retries "
    "stalled jobs, every second"
)

# min_size: a pool that need not grow in the middle of a measurement.
app = App(
    connector=PsycopgConnector(conninfo=os.environ.get("BENCH_URL", ""), min_size=4, max_size=20)
)


@app.task(name="noop", queue="bench")
async def noop() -> None:
    ledger.began()


@app.task(name="hold", queue="bench")
async def hold(number: int) -> None:
    ledger.began(number)
    await asyncio.sleep(1)
    ledger.ended(number)


@app.periodic(cron="* * * * * */1")
@app.task(name="retry_stalled", queueing_lock="retry_stalled", queue="bench")
async def retry_stalled(timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=5):
        await app.job_manager.retry_job(job)


async def setup(url: str) -> None:
    await app.open_async()
    await app.schema_manager.apply_schema_async()


async def enqueue(task: str, numbers: list[int]) -> None:
    if task == "hold":
        await hold.batch_defer_async(*({"number": number} for number in numbers))
    elif len(numbers) == 1:
        await noop.defer_async()
    else:
        await noop.batch_defer_async(*({} for _ in numbers))


def command(slots: int) -> list[str]:
    return [sys.executable, "-m", "bench.peers.procrastinate_peer", str(slots)]


async def work(slots: int) -> None:
    async with app.open_async():
        await app.run_worker_async(
            concurrency=slots, update_heartbeat_interval=1, stalled_worker_timeout=5
        )


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))
