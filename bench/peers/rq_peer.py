"""RQ on Redis."""

import os
import sys
import time

from redis import Redis
from rq import Queue, Retry

from bench.peers import ledger

SETTINGS = (
    "SimpleWorker (no fork for each job), one job at a time, so a worker with 10 slots is a pool "
    "of 10; Retry(max=3), results not kept"
)

queue: Queue


def noop() -> None:
    ledger.began()


def hold(number: int) -> None:
    ledger.began(number)
    time.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    global queue
    queue = Queue("bench", connection=Redis.from_url(url))


async def enqueue(task: str, numbers: list[int]) -> None:
    name = f"bench.peers.rq_peer.{task}"
    arguments = [(number,) if task == "hold" else () for number in numbers]
    options = {"retry": Retry(max=3), "result_ttl": 0, "timeout": 60}
    queue.enqueue_many([Queue.prepare_data(name, each, **options) for each in arguments])


def command(slots: int) -> list[str]:
    shared = ["--url", os.environ["BENCH_URL"], "--path", ".", "-w", "rq.SimpleWorker", "--quiet"]
    rq = [sys.executable, "-m", "rq.cli"]
    if slots == 1:
        return [*rq, "worker", *shared, "--maintenance-interval", "1", "bench"]
    return [*rq, "worker-pool", *shared, "--num-workers", str(slots), "bench"]
