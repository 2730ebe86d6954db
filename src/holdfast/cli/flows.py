"""`holdfast flows`: durable functions, their journals, and signals for them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import app_option, output_option, store_option

__all__ = ["flows"]


@click.group()
def flows() -> None:
    """Durable functions: what is recorded of them, and signals for them."""


@flows.command()
@click.argument("task")
@store_option
@output_option
def show(task: str, store: str | None, output: str) -> None:
    """What is recorded of a TASK, in order."""
    from holdfast.cli.loading import app_at
    from holdfast.cli.render import as_json, table

    run = asyncio.run(_exported(app_at(store, None), task))
    entries = [(e.position, e.kind, e.name, json.loads(bytes(e.value))) for e in run.journal]
    if output == "json":
        names = ("position", "kind", "name", "value")
        as_json([dict(zip(names, entry, strict=True)) for entry in entries])
    else:
        table(("position", "kind", "name"), [entry[:3] for entry in entries])


@flows.command()
@click.argument("task")
@store_option
def export(task: str, store: str | None) -> None:
    """Print the run of a TASK as JSON: for `holdfast flows check`, in a test of yours.

    It holds the arguments and results of the run as they are stored.
    """
    from holdfast.cli.loading import app_at

    run = asyncio.run(_exported(app_at(store, None), task))
    click.echo(run.written().decode())


@flows.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@app_option
def check(file: Path, app_name: str | None) -> None:
    """Does today's code still fit the run in FILE? Steps are not run, nothing is written.

    Exit code 0: it does; 5: it does not, and the difference is printed.
    """
    from holdfast.cli.loading import apply, load_app
    from holdfast.flow.checking import Run
    from holdfast.flow.checking import check as replay

    place = app_name or apply().app
    if place is None:
        raise Stop(Exit.USAGE, "which app? name it with --app pkg.module:app, or HOLDFAST_APP")
    run = Run.read(file.read_bytes())
    function = load_app(place).functions.find(run.type, run.version)
    found = asyncio.run(replay(function, run))
    if not found.fits:
        raise Stop(Exit.CONFLICT, f"{run.type} does not fit {file}: {found.told}")
    click.echo(f"{run.type} fits {file}: {found.told}")


@flows.command()
@click.argument("task")
@click.argument("name")
@click.argument("payload", default="null", metavar="[JSON]")
@store_option
def signal(task: str, name: str, payload: str, store: str | None) -> None:
    """Send a TASK the signal NAME, with a payload if there is one."""
    from holdfast.cli.loading import app_at

    try:
        value = json.loads(payload)
    except ValueError:
        raise Stop(Exit.USAGE, f"payload {payload!r:.80} is not JSON") from None
    asyncio.run(_signal(app_at(store, None), task, name, value))


async def _exported(app: Any, task: str) -> Any:
    from holdfast.client import task_id
    from holdfast.flow.checking import Run

    async with app:
        store = (await app.home.client()).store
        found = await store.get(task_id(task))
        payload, journal = await store.payload(found.id), await store.journal(found.id)
        return Run.of(found.id, found.type, found.version, payload, journal)


async def _signal(app: Any, task: str, name: str, value: Any) -> None:
    async with app:
        await app.state_of(task)  # an id that nobody knows is told apart from one that has ended
        if not await app.send_signal(task, name, value):
            raise Stop(Exit.CONFLICT, f"task {task} has ended: nobody waits for signals any more")
