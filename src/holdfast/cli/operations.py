"""`holdfast operations`: the same done to many tasks, bit by bit, by whoever serves the store."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.bulk import How, bulk_options, ended, facts, followed, matched, operate
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import SPAN, WHEN
from holdfast.cli.render import Column, say
from holdfast.cli.tasks import STATUSES
from holdfast.desk.desk import Desk
from holdfast.desk.papers import ACTIONS, Action, OperationView, TaskSelection

__all__ = ["operations"]

_OPERATIONS = (
    Column("id", lambda o: o.id),
    Column("action", lambda o: o.action),
    Column("state", lambda o: o.state),
    Column("matched", matched),
    Column("done", lambda o: o.done),
    Column("failed", lambda o: o.failed),
    Column("by", lambda o: o.actor),
    Column("created", lambda o: o.created_at),
    Column("ended", lambda o: o.ended_at),
)


@click.group(cls=Near)
def operations() -> None:
    """Operations: the same done to many tasks, paced, and stopped when somebody says so."""


@operations.command()
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--before", type=click.UUID, help="Only older ones than this.")
@asks
def ls(at: Asking, limit: int, before: UUID | None) -> None:
    """The newest first; those that ended are kept for 30 days."""
    found = at.ask(lambda desk: desk.operations(before=before, limit=limit))
    at.out.many(found, _OPERATIONS)
    if len(found) == limit:
        say(f"there may be more: --before {found[-1].id}")


@operations.command()
@click.argument("id", type=click.UUID)
@asks
def show(at: Asking, id: UUID) -> None:
    """How far an operation is, by its ID."""
    at.out.one(at.ask(lambda desk: desk.operation(id)), facts)


@operations.command()
@click.argument("id", type=click.UUID)
@asks
def cancel(at: Asking, id: UUID) -> None:
    """Do no more of an operation; what was done stays done.

    Exit code 5: it has ended already.
    """

    async def stop(desk: Desk) -> OperationView:
        found = await desk.operation(id)
        if found.ended_at is not None:
            raise Stop(Exit.CONFLICT, f"operation {id} has ended: it is {found.state}")
        return await desk.cancel_operation(id)

    at.out.one(at.ask(stop), facts)


@operations.command()
@click.argument("id", type=click.UUID)
@click.option("--timeout", type=SPAN, help="How long to wait.  [default: to its end]")
@asks
def wait(at: Asking, id: UUID, timeout: timedelta | None) -> None:
    """Wait for the end of an operation. Where nobody else does it, it is done here.

    Exit code 5: it was cancelled, or some could not be changed; 1: it broke off; 7: it has not
    ended in time.
    """
    found = at.ask(lambda desk: followed(desk, id, timeout))
    at.out.one(found, facts)
    ended(found)


def _selected(function: Any) -> Any:
    for option in (
        click.option("--ended-before", type=WHEN, help="Ended so long ago, or before this time."),
        click.option("--ended-after", type=WHEN, help="Ended within so long, or since this time."),
        click.option("--created-before", type=WHEN, help="Made so long ago, or before this time."),
        click.option("--created-after", type=WHEN, help="Made within so long, or since this time."),
        click.option("--error-type", help="Whose last error is of this type."),
        click.option("--error", help="Whose last error has this text in it."),
        click.option("--user-id", help="For this user of your application."),
        click.option("--tenant", "tenant_id", help="Of this tenant."),
        click.option("--tag", help="With this tag."),
        click.option("--type", help="Of this function."),
        click.option("--queue", help="In this queue."),
        click.option(
            "--status", type=click.Choice(STATUSES), required=True, help="Where they stand."
        ),
    ):
        function = option(function)
    return function


@operations.command()
@click.argument("action", type=click.Choice(ACTIONS))
@_selected
@bulk_options
@asks
def start(at: Asking, action: Action, how: How, **selection: str | datetime | None) -> None:
    """Do ACTION (cancel, retry, replay, discard) to all tasks that the options name.

    It shows first how many that are, and wants --yes, or an answer on a terminal.
    """
    chosen: Any = selection
    operate(at, action, TaskSelection(**chosen), how)
