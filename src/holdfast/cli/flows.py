"""`holdfast flows`: durable functions, their journals, and signals for them."""

import asyncio
import json
import shlex
from pathlib import Path
from uuid import UUID

import click
import msgspec

from holdfast.cli.asking import TASK, Asking, asks
from holdfast.cli.cells import safe_json, span
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import app_option
from holdfast.cli.render import Column, say
from holdfast.desk.desk import Desk
from holdfast.desk.graph import DEEPEST, DEPTH
from holdfast.desk.shapes import FlowEntry, FlowView, TaskQuery

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
_MOST_NAMED = 8


def _detail(entry: FlowEntry) -> str:
    """What an entry tells, in a few words."""
    match msgspec.json.decode(entry.value):
        case {"is": "came", "all": [*ones]}:
            return _named([f"{one['ask']} {one['how']}" for one in ones])
        case {"is": "recorded", "failure": {"type": type, "message": message}}:
            return f"failed with {type}: {message}"
        case {"is": "recorded"}:
            return "done"
        case {"is": "asked", "task": task}:
            return f"task {task}"
        case {"is": "asked", "seconds": seconds}:
            return span(seconds)
        case {"is": "holder", "ask": ask, "task": task}:
            return f"{ask} is task {task}"
        case {"asks": [*asks]}:
            return _named([str(ask) for ask in asks])
    return ""


def _named(parts: list[str]) -> str:
    more = [f"and {len(parts) - _MOST_NAMED} more"] if len(parts) > _MOST_NAMED else []
    return ", ".join(parts[:_MOST_NAMED] + more)


_JOURNAL = (
    Column("position", lambda e: e.position),
    Column("kind", lambda e: e.kind),
    Column("name", lambda e: "" if e.name == e.kind else e.name),
    Column("detail", _detail),
)


async def _whole(desk: Desk, task: UUID) -> FlowView:
    """All pages as one."""
    flow = part = await desk.flow(task)
    children = {child.id: child for child in part.children}
    while part.next_after is not None:
        part = await desk.flow(task, part.next_after)
        flow.journal.extend(part.journal)
        children |= {child.id: child for child in part.children}
    return msgspec.structs.replace(flow, children=list(children.values()), next_after=None)


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
    """What is recorded of a TASK, in order. JSON also has the values, and its children.

    What came, or was given up, is named by the position at which it was asked for."""
    flow = at.ask(lambda desk: _whole(desk, task))
    at.out.many(flow.journal, _JOURNAL, whole=flow)


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
