"""`holdfast dead-letter`: tasks that failed for good."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import click

from holdfast.cli.asking import TASK, Asking, asks
from holdfast.cli.bulk import How, bulk_options, operate
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import WHEN
from holdfast.cli.render import Column, say
from holdfast.cli.tasks import listed, told
from holdfast.desk.desk import Desk
from holdfast.desk.papers import TaskSelection
from holdfast.desk.shapes import Changed, TaskQuery

__all__ = ["dead_letter"]

_AT_ONCE = 1000

_LETTERS = (
    Column("id", lambda t: t.id),
    Column("type", lambda t: t.type),
    Column("queue", lambda t: t.queue),
    Column("tries", lambda t: t.try_count),
    Column("failed", lambda t: t.finished_at),
    Column("error", lambda t: t.last_error),
)
_GROUPS = (
    Column("count", lambda g: g.count),
    Column("type", lambda g: g.type),
    Column("error type", lambda g: g.error_type),
    Column("error", lambda g: g.error),
    Column("newest", lambda g: g.newest),
)


def _wanted(function: Any) -> Any:
    for option in (
        click.option("--user-id", help="For this user of your application."),
        click.option("--tenant", help="Of this tenant."),
        click.option("--until", type=WHEN, help="Failed so long ago, or before this time."),
        click.option("--since", type=WHEN, help="Failed within so long, or since this time."),
        click.option("--error-type", help="Whose error is of this type."),
        click.option("--error", help="Whose error has this text in it."),
        click.option("--type", help="Of this function."),
        click.option("--queue", help="Of this queue."),
    ):
        function = option(function)
    return function


def _filter(
    *, since: datetime | None, until: datetime | None, tenant: str | None, **more: Any
) -> dict[str, Any]:
    times = {"ended_after": since, "ended_before": until}
    return {"status": "failed", "tenant_id": tenant, **times, **more}


@click.group(cls=Near)
def dead_letter() -> None:
    """Dead letters: tasks that failed for good. See, replay and discard them."""


@dead_letter.command()
@_wanted
@click.option("--groups", is_flag=True, help="Those that look alike as one line, with a count.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Go on where the last page ended.")
@asks
def ls(at: Asking, groups: bool, limit: int, cursor: str | None, **given: Any) -> None:
    """Dead letters, those that failed last at the top."""
    if groups:
        if any(value is not None for value in (cursor, *given.values())):
            raise Stop(Exit.USAGE, "--groups shows all of them: leave the other filters out")
        at.out.many(at.ask(lambda desk: desk.dead_letter_groups(limit)), _GROUPS)
        return
    query = TaskQuery(**_filter(**given), limit=limit, cursor=cursor)
    letters, more = at.ask(lambda desk: listed(desk, query))
    at.out.many(letters, _LETTERS)
    if more:
        say(f"there are more: --cursor {shlex.quote(more)}")


@dead_letter.command()
@click.argument("task", type=TASK)
@asks
def show(at: Asking, task: UUID) -> None:
    """A TASK with its arguments, its attempts and the traceback of its last error."""
    from holdfast.cli.story import Story, tell

    async def both(desk: Any) -> tuple[Story, bytes]:
        return await Story.of(desk, task), await desk.arguments(task)

    story, arguments = at.ask(both, knowing=True)
    tell(at.out, story, arguments=arguments)


@dead_letter.command()
@click.argument("task", type=TASK, nargs=-1)
@_wanted
@click.option("--all", "everything", is_flag=True, help="All of them, without a filter.")
@bulk_options
@asks
def replay(at: Asking, task: tuple[UUID, ...], **given: Any) -> None:
    """Give TASKs that failed for good a new life, with all their tries.

    By ids at once; by a filter (or --all) it shows first how many that are, and wants --yes, or an
    answer on a terminal. Then it is an operation: see `holdfast operations`.
    """
    _move(at, task, "replay", **given)


@dead_letter.command()
@click.argument("task", type=TASK, nargs=-1)
@_wanted
@click.option("--all", "everything", is_flag=True, help="All of them, without a filter.")
@bulk_options
@asks
def discard(at: Asking, task: tuple[UUID, ...], **given: Any) -> None:
    """Forget TASKs that failed, for good: nothing of them is kept.

    By ids at once; by a filter (or --all) it shows first how many that are, and wants --yes, or an
    answer on a terminal. Then it is an operation: see `holdfast operations`.
    """
    _move(at, task, "discard", **given)


def _move(
    at: Asking,
    ids: Sequence[UUID],
    verb: Literal["replay", "discard"],
    *,
    everything: bool,
    how: How,
    **given: Any,
) -> None:
    filtered = any(value is not None for value in given.values())
    if bool(ids) + filtered + everything != 1:
        raise Stop(Exit.USAGE, "give ids, or filters such as --error and --type, or --all")
    if not ids:
        operate(at, verb, TaskSelection(**_filter(**given)), how)
        return
    if how.rate or how.detach:
        raise Stop(Exit.USAGE, "--rate and --detach are for filters: ids are done at once")
    if how.dry_run:
        say(f"{len(ids)} would be done; nothing was changed")
        return

    async def move(desk: Desk) -> Changed:
        parts = [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]
        done = [await getattr(desk, verb)(part) for part in parts]
        return Changed(
            changed=[id for one in done for id in one.changed],
            unchanged=[id for one in done for id in one.unchanged],
        )

    told(at.out, at.ask(move), f"there is nothing to {verb}: it is no dead letter")
