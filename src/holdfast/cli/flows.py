"""`holdfast flows`: durable functions, their journals, and signals for them."""

import asyncio
import json
import shlex
from pathlib import Path
from uuid import UUID

import click

from holdfast.cli.asking import TASK, Asking, asks
from holdfast.cli.cells import safe_json
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import app_option
from holdfast.cli.render import Column, say, table
from holdfast.desk.desk import Desk
from holdfast.desk.graph import DEEPEST, DEPTH
from holdfast.desk.shapes import TaskQuery

__all__ = ["flows"]

_FLOWS = (
    Column("id", lambda t: t.id),
    Column("type", lambda t: t.type),
    Column("queue", lambda t: t.queue),
    Column("reason", lambda t: t.reason),
    Column("until", lambda t: t.run_at),
    Column("tries", lambda t: t.try_count),
    Column("created", lambda t: t.created_at),
)


@click.group(cls=Near)
def flows() -> None:
    """Durable functions: what is recorded of them, and signals for them."""


@flows.command()
@click.option("--queue", help="In this queue.")
@click.option("--type", help="Of this function.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Go on where the last page ended.")
@asks
def ls(at: Asking, queue: str | None, type: str | None, limit: int, cursor: str | None) -> None:
    """Functions that were put down and wait: for a child, a signal, a time, or somebody who mends
    their code (parked). Those that run are among `holdfast tasks ls --status running`."""
    query = TaskQuery(status="waiting", queue=queue, type=type, limit=limit, cursor=cursor)
    page = at.ask(lambda desk: desk.tasks(query))
    at.out.many(page.data, _FLOWS, whole=page)
    if page.next_cursor and at.out.form != "json":
        say(f"there are more: --cursor {shlex.quote(page.next_cursor)}")


@flows.command()
@click.argument("task", type=TASK)
@asks
def show(at: Asking, task: UUID) -> None:
    """What is recorded of a TASK, in order. JSON also has the values, and its children."""
    flow = at.ask(lambda desk: desk.flow(task))
    if not at.out.for_people:
        columns = (Column("position", lambda e: e.position),)
        at.out.many(flow.journal, columns, whole=flow)
        return
    rows = [(entry.position, entry.kind, entry.name) for entry in flow.journal]
    table(("position", "kind", "name"), rows, cells=at.out.cells)


@flows.command()
@click.argument("task", type=TASK)
@click.option("--depth", type=click.IntRange(1, DEEPEST), default=DEPTH, show_default=True)
@asks
def graph(at: Asking, task: UUID, depth: int) -> None:
    """A TASK and its children, theirs, and so on, as a tree. Many that are alike are one line.

    JSON has the tasks (nodes) and who asked for whom (edges)."""
    from holdfast.cli.tree import lines

    found = at.ask(lambda desk: desk.graph(task, depth=depth))
    if not at.out.for_people:
        columns = (Column("id", lambda n: n.task.id),)
        at.out.many(found.nodes, columns, whole=found)
        return
    for line in lines(found):
        at.out.line(line)


@flows.command()
@click.argument("task", type=TASK)
@asks
def export(at: Asking, task: UUID) -> None:
    """Print the run of a TASK as JSON: for `holdfast flows check`, in a test of yours.

    It holds the arguments and results of the run as they are stored.
    """
    click.echo(safe_json(at.ask(lambda desk: desk.export(task)).decode()))


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
@click.argument("task", type=TASK)
@click.argument("name")
@click.argument("payload", default="null", metavar="[JSON]")
@asks
def signal(at: Asking, task: UUID, name: str, payload: str) -> None:
    """Send a TASK the signal NAME, with a payload if there is one."""
    try:
        value = json.loads(payload)
    except ValueError:
        raise Stop(Exit.USAGE, f"payload {payload!r:.80} is not JSON") from None

    async def send(desk: Desk) -> bool:
        return await desk.signal(task, name, value)

    if not at.ask(send):
        raise Stop(Exit.CONFLICT, f"task {task} has ended: nobody waits for signals any more")
