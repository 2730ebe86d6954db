"""DBOS: `python -m bench.peers.dbos_peer SLOTS` is one worker."""

import asyncio
import os
import sys
import threading

import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.peers import ledger

SETTINGS = (
    "queue polled every 10 ms, async workflows; recovery: a restarted worker of the same "
    "executor_id takes up what that one held (other workers do not, without DBOS Conductor)"
)
VERSION = "1"

client: DBOSClient
engine: sqlalchemy.Engine


def config(url: str) -> DBOSConfig:
    return {
        "name": "bench",
        "system_database_url": url.replace("postgresql://", "postgresql+psycopg://"),
        "application_version": VERSION,
        "executor_id": os.environ.get("BENCH_WORKER", "producer"),
        "log_level": "ERROR",
    }


@DBOS.workflow(name="noop")
async def noop() -> None:
    ledger.began()


@DBOS.workflow(name="hold")
async def hold(number: int) -> None:
    ledger.began(number)
    await asyncio.sleep(1)
    ledger.ended(number)


async def setup(url: str) -> None:
    await asyncio.to_thread(_setup, url)


def _setup(url: str) -> None:
    global client, engine
    DBOS(config=config(url))
    DBOS.launch()  # makes the tables
    DBOS.destroy()
    place = config(url)["system_database_url"]
    client, engine = DBOSClient(system_database_url=place), sqlalchemy.create_engine(place)


async def enqueue(task: str, numbers: list[int]) -> None:
    await asyncio.to_thread(_enqueue, task, numbers)


def _enqueue(task: str, numbers: list[int]) -> None:
    options: EnqueueOptions = {
        "workflow_name": task,
        "queue_name": "bench",
        "app_version": VERSION,
        "application_name": "bench",
    }
    arguments = [(number,) if task == "hold" else () for number in numbers]
    if len(arguments) == 1:
        client.enqueue(options, *arguments[0])
        return
    with engine.begin() as transaction:
        for each in arguments:
            client.enqueue_in_transaction(transaction, options, *each)


def command(slots: int) -> list[str]:
    return [sys.executable, "-m", "bench.peers.dbos_peer", str(slots)]


def work(slots: int) -> None:
    DBOS(config=config(os.environ["BENCH_URL"]))
    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=slots, polling_interval_sec=0.01)
    threading.Event().wait()


if __name__ == "__main__":
    work(int(sys.argv[1]))
