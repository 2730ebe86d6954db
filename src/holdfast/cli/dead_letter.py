"""`holdfast dead-letter`: tasks that failed for good."""

from typing import Any
from uuid import UUID

import click

from holdfast.cli.asking import TASK, Asking, asks
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.letters import Wanted, bulk, found_letters
from holdfast.cli.options import SPAN
from holdfast.cli.render import Column

__all__ = ["dead_letter"]

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


class _Rate(click.ParamType[float]):
    """`20/s`, `100/m`, or a number for each second."""

    name = "n/s"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        number, _, unit = str(value).partition("/")
        seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip())
        try:
            rate = float(number) / (seconds or 0)
        except (ValueError, ZeroDivisionError):
            rate = 0.0
        if not 0 < rate < float("inf"):
            self.fail(f"{value!r:.80} is no rate; write 20/s or 100/m", param, ctx)
        return rate


def _wanted(function: Any) -> Any:
    for option in (
        click.option("--tenant", help="Of this tenant."),
        click.option("--since", type=SPAN, help="Failed within so long."),
        click.option("--error", help="Whose error has this text in it."),
        click.option("--type", help="Of this function."),
        click.option("--queue", help="Of this queue."),
    ):
        function = option(function)
    return function


def _bulk(function: Any) -> Any:
    for option in (
        click.option("--yes", is_flag=True, help="Do it, without asking."),
        click.option("--dry-run", is_flag=True, help="Only show what it would be."),
        click.option("--all", "everything", is_flag=True, help="All of them, without a filter."),
    ):
        function = option(function)
    return function


@click.group(cls=Near)
def dead_letter() -> None:
    """Dead letters: tasks that failed for good. See, replay and discard them."""


@dead_letter.command()
@_wanted
@click.option("--groups", is_flag=True, help="Those that look alike as one line, with a count.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@asks
def ls(at: Asking, groups: bool, limit: int, **given: Any) -> None:
    """Dead letters, those that failed last at the top."""
    if groups:
        if any(value is not None for value in given.values()):
            raise Stop(Exit.USAGE, "--groups shows all of them: leave the other filters out")
        at.out.many(at.ask(lambda desk: desk.dead_letter_groups(limit)), _GROUPS)
        return
    wanted = Wanted.of(**given)
    at.out.many(at.ask(lambda desk: found_letters(desk, wanted, limit)), _LETTERS)


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
@_bulk
@click.option("--rate", type=_Rate(), help="So many at a time, such as 20/s; else all at once.")
@asks
def replay(at: Asking, task: tuple[UUID, ...], rate: float | None, **given: Any) -> None:
    """Give TASKs that failed for good a new life, with all their tries.

    By ids at once; by a filter (or --all) it shows first how many that are, and wants --yes, or an
    answer on a terminal.
    """
    bulk(at, task, "replay", rate=rate, **given)


@dead_letter.command()
@click.argument("task", type=TASK, nargs=-1)
@_wanted
@_bulk
@asks
def discard(at: Asking, task: tuple[UUID, ...], **given: Any) -> None:
    """Forget TASKs that failed, for good: nothing of them is kept.

    By ids at once; by a filter (or --all) it shows first how many that are, and wants --yes, or an
    answer on a terminal.
    """
    bulk(at, task, "discard", rate=None, **given)
