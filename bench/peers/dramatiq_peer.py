"""Dramatiq on Redis."""

import os
import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import ledger

SETTINGS = (
    "one process with threads; heartbeat_timeout 5 s (60 by default), maintenance with every "
    "command (1 in 1,000 by default)"
)

broker = RedisBroker(
    url=os.environ.get("BENCH_URL"), heartbeat_timeout=5_000, maintenance_chance=1_000_000
)
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop() -> None:
    ledger.began()


@dramatiq.actor(actor_name="hold")
def hold(number: int) -> None:
    ledger.began(number)
    time.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    broker.client.ping()


async def enqueue(task: str, numbers: list[int]) -> None:
    """One message at a time: Dramatiq has no call for many that is faster."""
    for number in numbers:
        if task == "noop":
            noop.send()
        else:
            hold.send(number)


def command(slots: int) -> list[str]:
    return [
        *(sys.executable, "-m", "dramatiq", "bench.peers.dramatiq_peer"),
        *("--processes", "1", "--threads", str(slots)),
    ]
