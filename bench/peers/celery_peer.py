"""Celery on Redis."""

import os
import sys
import time

from celery import Celery

from bench.peers import ledger

SETTINGS = (
    "acks_late, reject_on_worker_lost, no results; visibility_timeout 5 s (3,600 by default), "
    "restored every second; prefork, prefetch 64, no gossip, mingle or heartbeat"
)

app = Celery("bench", broker=os.environ.get("BENCH_URL"))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 5,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)


@app.task(name="noop")
def noop() -> None:
    ledger.began()


@app.task(name="hold")
def hold(number: int) -> None:
    ledger.began(number)
    time.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    app.connection_for_write().ensure_connection(timeout=10)


async def enqueue(task: str, numbers: list[int]) -> None:
    """One message at a time over one connection: Celery has no call for many."""
    with app.producer_pool.acquire(block=True) as producer:
        for number in numbers:
            if task == "noop":
                noop.apply_async(producer=producer)
            else:
                hold.apply_async((number,), producer=producer)


def command(slots: int) -> list[str]:
    return [
        *(sys.executable, "-m", "celery", "-A", "bench.peers.celery_peer", "worker"),
        *("--pool", "prefork", "--concurrency", str(slots), "--loglevel", "ERROR"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        *("-n", os.environ.get("BENCH_WORKER", "worker") + "@%h"),
    ]
