"""`holdfast demo`: a worker is killed in the middle of its work, and nothing is lost.

Real processes on an SQLite file. The summary is read back from the store, never assumed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import click
from rich.console import Console
from rich.table import Table

from holdfast.ids import new_id, new_worker_id
from holdfast.store import Store, TaskFilter, WorkerRecord
from holdfast.stores.opening import open_store
from holdfast.tasks.lifecycle import Done, Facts, Settlement, settle
from holdfast.tasks.task import Claimed, Draft, TaskStatus

LEASE = timedelta(seconds=2)
TASKS = 12
STEPS = 5


def run() -> int:
    """Play it; 0 when everything that was promised was seen."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        return asyncio.run(_play(f"sqlite:///{Path(folder) / 'demo.db'}", Console()))


async def _play(url: str, say: Console) -> int:
    store = await open_store(url)
    try:
        ids = await store.enqueue([_draft("demo", n) for n in range(TASKS)])
        say.print(
            f"[bold]{TASKS} tasks[/] accepted by an SQLite file, each on disk before the answer"
        )

        first = _start(url, "worker-1")
        say.print(f"[bold]worker-1[/] (pid {first.pid}) claims and works under leases of {LEASE}")
        held = await _until_halfway(store, first)
        first.send_signal(signal.SIGKILL)
        first.wait()
        say.print(f"[bold red]kill -9[/] worker-1, with {held} tasks in its hands, unfinished")

        second = _start(url, "worker-2")
        say.print(f"[bold]worker-2[/] (pid {second.pid}) takes over when the leases have lapsed")
        refused = await _be_a_zombie(store, say)
        await _until_ended(store, say, TASKS + 1)
        second.terminate()
        second.wait()
        return await _summary(store, say, ids, held, refused)
    finally:
        await store.close()


def _draft(queue: str, number: int) -> Draft:
    return Draft(id=new_id(), type="demo:render", queue=queue, payload=b"%d" % number)


def _start(url: str, name: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "holdfast.cli.demo", url, name]
    return subprocess.Popen(command)  # noqa: S603 (our own module, no shell)


async def _until_halfway(store: Store, worker: "subprocess.Popen[bytes]") -> int:
    """Until the worker has ended some tasks and is in the middle of others; of how many."""
    while worker.poll() is None:
        done = await store.list_tasks(TaskFilter(status=TaskStatus.DONE))
        running = await store.list_tasks(TaskFilter(status=TaskStatus.RUNNING))
        if done.tasks and running.tasks and all((t.progress or 0) >= 40 for t in running.tasks):
            return len(running.tasks)
        await asyncio.sleep(0.02)
    raise click.ClickException("the worker of the demo ended by itself; its error is above")


async def _be_a_zombie(store: Store, say: Console) -> bool:
    """Hold a lease, sleep past its end, and try to write all the same."""
    await store.enqueue([_draft("zombie", 0)])
    lanes = (await store.lanes()).lanes
    mine = [id for id, lane in lanes.items() if lane.queue == "zombie"]
    answer = await store.claim(worker=new_worker_id(), lanes=mine, want=1, lease=LEASE / 4)
    (task,) = answer.tasks
    say.print("a [bold]zombie[/] takes one task, sleeps past its lease of half a second …")
    await _until_done(store, task.lease.task)
    refused = await store.settle([(task.lease, _done(task, b'"too late"'))])
    say.print(
        "… wakes up and writes its result: "
        + ("[green]refused[/]" if refused else "[red]ACCEPTED[/]")
    )
    return bool(refused)


async def _until_done(store: Store, task: UUID) -> None:
    while True:
        if (await store.get(task)).status is TaskStatus.DONE:
            return
        await asyncio.sleep(0.05)


async def _until_ended(store: Store, say: Console, count: int) -> None:
    with say.status("working …") as status:
        while (
            done := len((await store.list_tasks(TaskFilter(status=TaskStatus.DONE))).tasks)
        ) < count:
            status.update(f"{done} of {count} done")
            await asyncio.sleep(0.05)


async def _summary(store: Store, say: Console, ids: list[UUID], held: int, refused: bool) -> int:
    ended: Counter[str] = Counter()
    workers: Counter[str] = Counter()
    for id in ids:
        attempts = await store.attempts(id)
        ended.update(attempt.ended or "still running" for attempt in attempts)
        workers.update(a.worker_name or "?" for a in attempts if a.ended == "done")
    table = Table(title="read back from the store's history", show_header=False)
    table.add_row("tasks accepted", str(len(ids)))
    table.add_row("tasks done, each once", str(ended["done"]))
    table.add_row("  by worker-1, before it was killed", str(workers["worker-1"]))
    table.add_row("  by worker-2", str(workers["worker-2"]))
    table.add_row("attempts lost with worker-1, and recovered", str(ended["lost"]))
    table.add_row("late write of the zombie", "refused" if refused else "accepted")
    say.print(table)
    good = ended == {"done": TASKS, "lost": held} and refused and held > 0
    say.print(
        "[green]nothing was lost, nothing ended twice[/]"
        if good
        else "[red]a promise was broken[/]"
    )
    return 0 if good else 1


async def _work(url: str, name: str) -> None:
    """The worker of this demo: a claim, some work with progress, a settle, again."""
    store = await open_store(url)
    me = WorkerRecord(id=new_worker_id(), name=name, pid=os.getpid(), slots=4)
    await store.register(me)
    while True:
        await store.recover()
        lanes = (await store.lanes()).lanes
        answer = await store.claim(worker=me.id, lanes=list(lanes), want=me.slots, lease=LEASE)
        await asyncio.gather(*(_attempt(store, task) for task in answer.tasks))
        if not answer.tasks:
            await asyncio.sleep(0.1)


async def _attempt(store: Store, task: Claimed) -> None:
    for step in range(1, STEPS + 1):
        await asyncio.sleep(0.15)
        await store.renew([task.lease], LEASE)
        await store.progress(task.lease, 100 * step / STEPS)
    await store.settle([(task.lease, _done(task, b'"rendered"'))])


def _done(task: Claimed, result: bytes) -> Settlement:
    return settle(Facts(tries=task.tries, max_tries=3), Done(result))


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:3]))
