"""The whole demo by itself, with real worker processes on an SQLite file."""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from rich.console import Console
from rich.table import Table

from holdfast.cli.demo.functions import render
from holdfast.cli.demo.picture import DEAD, Picture, picture
from holdfast.cli.demo.stage import LEASE, SLOTS, Stage
from holdfast.cli.demo.summary import Findings, look_back
from holdfast.cli.demo.zombie import Zombie
from holdfast.cli.exits import Exit, Stop
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.stores.opening import open_store
from holdfast.tasks.task import Task, TaskStatus

__all__ = ["run"]

_JOBS = 14
_SECONDS = 2.0  # that a job takes
_LIMIT = 50.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run() -> int:
    """Play it; 0 when everything that was promised was seen."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        return asyncio.run(_play(Path(folder), console))


async def _play(folder: Path, console: Console) -> int:
    url = f"sqlite:///{folder / 'demo.db'}"
    store, stage = await open_store(url), Stage(url, folder)
    try:
        async with asyncio.timeout(_LIMIT):
            return await Show(store, stage, console).play()
    except TimeoutError:
        raise Stop(
            Exit.FAILED, f"the demo did not end within {_LIMIT:g} s; is this machine very busy?"
        ) from None
    finally:
        await stage.clear()
        await store.close()


class Show:
    """Jobs, workers, a kill and a zombie."""

    def __init__(self, store: Store, stage: Stage, console: Console) -> None:
        self._store, self._stage, self._console = store, stage, console
        self._jobs: list[UUID] = []
        self._lost: frozenset[UUID] = frozenset()

    async def play(self) -> int:
        with picture(self._console) as seen:
            haunted, zombie = await self._summon(seen)
            await self._begin(seen)
            killed = await self._kill(seen)
            haunting = asyncio.create_task(self._haunt(seen, zombie))
            await self._replace(seen)
            await self._until_done(seen)
            await haunting
            codes = await self._stage.drain()
            seen.say(
                "the workers drained, with " + ", ".join(f"exit code {c}" for c in codes.values())
            )
        findings = await look_back(self._store, self._jobs, haunted, self._lost, killed)
        return _tell(findings, self._console)

    async def _summon(self, seen: Picture) -> tuple[UUID, Zombie]:
        """Before anybody else is there who could take the task."""
        zombie = Zombie(self._store)
        (task,) = await self._store.enqueue([render.draft((0, 0.2, 2), {})])
        await zombie.take(task, timedelta(seconds=LEASE * 2))
        seen.say("a [bold]zombie[/] takes a task and falls asleep, past the end of its lease")
        return task, zombie

    async def _begin(self, seen: Picture) -> None:
        await self._accept(seen)
        pids = await asyncio.gather(*(self._stage.enter(name) for name in (DEAD, "worker-2")))
        seen.say(
            f"[bold]{DEAD}[/] (pid {pids[0]}) and [bold]worker-2[/] (pid {pids[1]}) work, "
            f"{SLOTS} jobs each at a time, under leases of {LEASE:g} s"
        )

    async def _accept(self, seen: Picture) -> None:
        first = len(self._jobs) + 1
        drafts = [render.draft((n, _SECONDS), {}) for n in range(first, first + _JOBS)]
        self._jobs += await self._store.enqueue(drafts)
        seen.say(f"[bold]{_JOBS} jobs[/] are accepted, each on disk before the answer")

    async def _kill(self, seen: Picture) -> datetime:
        """In the middle of its work. It stands still while we make sure of that: where we were
        held up, it may have ended its jobs since we looked, or all of them."""
        while True:
            jobs = await self._look(seen)
            if _in_the_middle(jobs):
                self._stage.freeze(DEAD)
                if _in_the_middle(await self._look(seen)):
                    break
                self._stage.thaw(DEAD)
            elif all(job.status is TaskStatus.DONE for job in jobs):
                await self._accept(seen)
        await self._stage.kill(DEAD)
        killed = _EPOCH + timedelta(microseconds=SystemClock().wall())
        jobs = await self._read()
        self._lost = frozenset(job.id for job in jobs if job.locked_by == DEAD)
        seen.say(
            f"[bold red]kill -9[/] {DEAD}, with {len(self._lost)} jobs in its hands, unfinished"
        )
        return killed

    async def _replace(self, seen: Picture) -> None:
        coming = asyncio.create_task(self._stage.enter("worker-3"))
        while not coming.done():
            await self._look(seen)
        seen.say(f"[bold]worker-3[/] (pid {coming.result()}) comes in its place")

    async def _haunt(self, seen: Picture, zombie: Zombie) -> None:
        refused = await zombie.wake_up_and_write()
        seen.say(
            "the [bold]zombie[/] wakes up and writes its result: "
            + ("[green]refused[/]" if refused else "[red]accepted[/]")
        )

    async def _until_done(self, seen: Picture) -> None:
        while any(job.status is not TaskStatus.DONE for job in await self._look(seen)):
            self._stage.check()

    async def _look(self, seen: Picture) -> list[Task]:
        jobs = await self._read()
        seen.show(jobs, self._lost)
        await asyncio.sleep(0.05)
        return jobs

    async def _read(self) -> list[Task]:
        """At once: on a busy machine, one after the other would miss what takes a second."""
        found = await self._store.get_many(self._jobs)
        return [found[job] for job in self._jobs]


def _in_the_middle(jobs: list[Task]) -> bool:
    """It has jobs in its hands, half done, and some have ended already."""
    mine = [job for job in jobs if job.locked_by == DEAD]
    some_done = any(job.status is TaskStatus.DONE for job in jobs)
    return some_done and len(mine) > 1 and all((job.progress or 0) >= 40 for job in mine)


def _tell(found: Findings, console: Console) -> int:
    table = Table(title="read back from the store's history", show_header=False)
    table.add_row("tasks accepted", str(found.accepted))
    table.add_row("tasks done, each once", str(found.done - found.ended_twice))
    for worker, count in found.by_worker.items():
        table.add_row(f"  by {worker}", str(count))
    table.add_row(f"held by {DEAD} when it was killed", str(found.held))
    table.add_row("  recovered and done by others", str(found.recovered))
    table.add_row("  granted again after the kill, the last", f"{found.slowest:.1f} s")
    table.add_row("late writes of the zombie, refused", str(found.refused))
    console.print(table)
    promises = found.promises()
    for words, kept in promises:
        console.print(f"[green]kept[/]    {words}" if kept else f"[red]BROKEN[/]  {words}")
    if not all(kept for _, kept in promises):
        console.print("[red]a promise was broken[/]")
        return Exit.FAILED
    console.print("[green]nothing was lost, nothing ended twice[/]")
    return Exit.OK
