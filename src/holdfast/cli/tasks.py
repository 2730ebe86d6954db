"""`holdfast tasks`: what there is to do, is done and was done."""

import asyncio
import shlex
from datetime import timedelta
from typing import Any
from uuid import UUID

import click
import msgspec

from holdfast.cli.asking import TASK, Asking, asks
from holdfast.cli.cells import safe_json
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import INSTANT, LABELS, SPAN, WHEN
from holdfast.cli.render import Column, Printer, say
from holdfast.desk.desk import Desk
from holdfast.desk.papers import LogView
from holdfast.desk.shapes import Changed, ResultView, TaskEdit, TaskQuery, TaskView

__all__ = ["STATUSES", "TASKS", "awaited", "filters", "listed", "outcome", "tasks", "told"]

STATUSES = ("pending", "running", "waiting", "done", "failed", "cancelled")
_ENDED = ("done", "failed", "cancelled")
_LONGEST_WAIT = 25.0
TASKS = (
    Column("id", lambda t: t.id),
    Column("type", lambda t: t.type),
    Column("status", lambda t: t.status),
    Column("queue", lambda t: t.queue),
    Column("tries", lambda t: f"{t.try_count}/{t.max_tries or '-'}"),
    Column("worker", lambda t: t.locked_by),
    Column("created", lambda t: t.created_at),
    Column("due", lambda t: t.run_at if t.status in ("pending", "waiting") else None),
    Column("ended", lambda t: t.finished_at),
)


_LINES = (
    Column("fence", lambda line: line.fence),
    Column("at", lambda line: line.at),
    Column("level", lambda line: line.level),
    Column("logger", lambda line: line.logger),
    Column("message", lambda line: line.message),
)


@click.group(cls=Near)
def tasks() -> None:
    """Tasks: see them, wait for them, change, cancel and retry them."""


def filters(function: Any) -> Any:
    for option in (
        click.option("--created-before", type=WHEN, help="Made so long ago, or before this time."),
        click.option("--created-after", type=WHEN, help="Made within so long, or since this time."),
        click.option("--error-type", help="Whose last error is of this type."),
        click.option("--error", help="Whose last error has this text in it."),
        click.option("--user-id", help="For this user of your application."),
        click.option("--tenant", "tenant_id", help="Of this tenant."),
        click.option("--tag", help="With this tag."),
        click.option("--type", help="Of this function."),
        click.option("--queue", help="In this queue."),
    ):
        function = option(function)
    return function


@tasks.command()
@click.option("--status", type=click.Choice(STATUSES), help="Only where they stand so.")
@filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Go on where the last page ended.")
@asks
def ls(at: Asking, **given: Any) -> None:
    """List tasks: pending ones as they will be taken, all others newest first."""
    query = TaskQuery(**given)
    page = at.ask(lambda desk: desk.tasks(query))
    at.out.many(page.data, TASKS, whole=page)
    if page.next_cursor and at.out.form != "json":
        say(f"there are more: --cursor {shlex.quote(page.next_cursor)}")


@tasks.command()
@click.argument("task", type=TASK)
@asks
def show(at: Asking, task: UUID) -> None:
    """A TASK with its attempts as a timeline, what holds it back, and its last error."""
    from holdfast.cli.story import Story, tell

    tell(at.out, at.ask(lambda desk: Story.of(desk, task)))


@tasks.command()
@click.argument("task", type=TASK)
@asks
def logs(at: Asking, task: UUID) -> None:
    """What the attempts of a TASK wrote into the log, in order."""

    async def all_of_them(desk: Desk) -> list[LogView]:
        page = await desk.logs(task)
        lines = page.data
        while page.next_cursor is not None:
            page = await desk.logs(task, cursor=page.next_cursor)
            lines += page.data
        return lines

    found = at.ask(all_of_them)
    at.out.many(found, _LINES)
    for line in found:
        if line.left_out:
            say(f"{line.left_out} more lines of the attempt with fence {line.fence} were not kept")


@tasks.command()
@click.argument("task", type=TASK, nargs=-1, required=True)
@asks
def retry(at: Asking, task: tuple[UUID, ...]) -> None:
    """Run TASKs again that failed or were cancelled; what waits for its time goes ahead.

    Exit code 5: one of them could not be moved.
    """
    told(at.out, at.ask(lambda desk: desk.retry(task)), "it runs, or is done")


@tasks.command()
@click.argument("task", type=TASK)
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--queue", help="Into this queue.")
@click.option("--tags", type=LABELS, help='These tags; "" for none.')
@click.option("--requires", type=LABELS, help='What a worker must offer; "" for nothing.')
@click.option("--delay", type=SPAN, help="Due in so long; 0 for at once.")
@click.option("--run-at", type=INSTANT, help="Due at this time.")
@click.option("--expires", type=SPAN, help="Not to be started later than in so long.")
@click.option("--no-expiry", is_flag=True, help="However late.")
@click.option("--max-tries", type=int, help="So often at most.")
@asks
def edit(at: Asking, task: UUID, no_expiry: bool, **given: Any) -> None:
    """Change a TASK that has not begun. What is not named stays.

    With another queue, priority or time it stands behind those that wait there. Exit code 5: it
    runs, or has ended.
    """
    if no_expiry and given["expires"] is not None:
        raise Stop(Exit.USAGE, "give --expires or --no-expiry, not both")
    wish = {name: _plain(value) for name, value in given.items() if value is not None}
    if no_expiry:
        wish["expires"] = None
    if not wish:
        raise Stop(Exit.USAGE, "say what to change, such as --priority 5 or --delay 0")
    from holdfast.cli.story import about

    at.out.one(at.ask(lambda desk: desk.edit(task, TaskEdit(**wish))), about)


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


@tasks.command()
@click.argument("task", type=TASK, nargs=-1, required=True)
@asks
def cancel(at: Asking, task: tuple[UUID, ...]) -> None:
    """Cancel TASKs: what has not started never will, what runs is asked to stop.

    Exit code 5: one of them has ended already.
    """
    told(at.out, at.ask(lambda desk: desk.cancel(task)), "it has ended")


@tasks.command()
@click.argument("task", type=TASK)
@click.option("--timeout", type=SPAN, default="30s", show_default=True, help="How long to wait.")
@asks
def wait(at: Asking, task: UUID, timeout: timedelta) -> None:
    """Wait for a TASK and print its result, as JSON.

    Exit code 8: it failed or was cancelled; 7: it has not ended in time.
    """
    outcome(at.out, at.ask(lambda desk: awaited(desk, task, timeout)), timeout)


@tasks.command()
@click.option("--after", type=click.IntRange(0), help="Begin after this number.  [default: now]")
@click.option("--task", type=TASK, help="Only of this task.")
@click.option("--only", multiple=True, metavar="EVENT", help="Such as task.failed; repeatable.")
@click.option("--no-follow", is_flag=True, help="End when all is told that has happened.")
@asks
def tail(
    at: Asking, after: int | None, task: UUID | None, only: tuple[str, ...], no_follow: bool
) -> None:
    """What happens, as it happens: how attempts end, and late writes that were refused."""
    from holdfast.cli.following import follow

    follow(at, after=after, task=task, only=frozenset(only), forever=not no_follow)


async def awaited(desk: Desk, task: UUID, timeout: timedelta) -> ResultView:
    """How it ended, or where it stands when the time is over; a desk waits a while at most."""
    loop = asyncio.get_running_loop()
    over = loop.time() + timeout.total_seconds()
    while True:
        left = over - loop.time()
        found = await desk.result(task, wait=max(min(left, _LONGEST_WAIT), 0.0))
        if found.status in _ENDED or loop.time() >= over:
            return found


async def listed(desk: Desk, query: TaskQuery) -> tuple[list[TaskView], str | None]:
    """As many as are asked for, if there are, and the cursor where there are more."""
    data: list[TaskView] = []
    limit = query.limit
    while True:
        page = await desk.tasks(msgspec.structs.replace(query, limit=limit - len(data)))
        data += page.data
        if page.next_cursor is None:
            return data, None
        if len(data) == limit:  # what follows need not be what was asked for
            rest = msgspec.structs.replace(query, cursor=page.next_cursor, limit=1)
            after = await desk.tasks(rest)
            return data, page.next_cursor if after.data or after.next_cursor else None
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


def told(out: Printer, changed: Changed, otherwise: str) -> None:
    """Ids that were moved on stdout; a conflict where one was not."""
    if out.form == "table":
        for id in changed.changed:
            out.line(str(id))
    else:
        out.one(changed, lambda _: ())
    if changed.status == "requested":
        say("it runs: its worker is told to stop with its next heartbeat")
    if changed.unchanged:
        names = ", ".join(map(str, changed.unchanged[:5]))
        more = f" and {len(changed.unchanged) - 5} more" if len(changed.unchanged) > 5 else ""
        raise Stop(Exit.CONFLICT, f"not changed: {names}{more}; {otherwise}, or nobody knows it")


def outcome(out: Printer, found: ResultView, timeout: timedelta) -> None:
    """The result on stdout, or an end that says why there is none."""
    if not out.for_people:
        out.one(found, lambda _: ())
    elif found.status == "done":
        click.echo(safe_json(bytes(found.result).decode()))
    if found.status in ("failed", "cancelled"):
        error = found.error
        said = f"{error.type}: {error.message}" if error else "somebody asked for it"
        raise Stop(
            Exit.TASK_FAILED,
            f"task {found.id} ended as {found.status}, {said}\nOnce the cause is mended, "
            f"`holdfast tasks retry {found.id}` gives it a new life.",
        )
    if found.status != "done":
        raise Stop(
            Exit.TIMED_OUT,
            f"task {found.id} has not ended within {timeout.total_seconds():g} s, it is "
            f"{found.status}; it goes on without us. Wait longer with --timeout, or see what "
            f"holds it back: holdfast tasks show {found.id}",
        )
