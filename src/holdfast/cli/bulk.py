"""The same done to many tasks: shown first, agreed to, then done by the other side and watched."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from typing import Any, NamedTuple
from uuid import UUID

import click

from holdfast.cli.asking import Asking
from holdfast.cli.cells import safe, span
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import RATE
from holdfast.cli.progress import progress_bar
from holdfast.cli.render import say
from holdfast.desk.desk import Desk
from holdfast.desk.papers import Action, OperationView, OperationWish, TaskSelection
from holdfast.desk.shapes import TaskView
from holdfast.errors import UnknownTask

__all__ = ["How", "bulk_options", "ended", "facts", "followed", "matched", "operate"]

_SAMPLE = 5
_LOOK, _REST = 1.0, 0.5  # seconds
_ENDED = ("done", "failed", "cancelled")


class How(NamedTuple):
    """`rate`: so many a second; `detach`: do not wait for its end."""

    rate: float | None
    reason: str | None
    dry_run: bool
    yes: bool
    detach: bool


def bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All that `How` has, and as one value: `how`."""

    @wraps(function)
    def called(*args: Any, **given: Any) -> Any:
        return function(*args, how=How(**{name: given.pop(name) for name in How._fields}), **given)

    found: Callable[..., Any] = called
    for option in (
        click.option("--detach", is_flag=True, help="Do not wait for its end."),
        click.option("--yes", is_flag=True, help="Do it, without asking."),
        click.option("--dry-run", is_flag=True, help="Only show what it would be."),
        click.option("--reason", help="Why, for the record."),
        click.option("--rate", type=RATE, help="So many at a time, such as 20/s; else at once."),
    ):
        found = option(found)
    return found


def operate(at: Asking, action: Action, filter: TaskSelection, how: How) -> None:
    """Show what it is, ask, begin, and wait for its end."""
    wish = OperationWish(
        action=action, filter=filter, rate=how.rate, reason=how.reason, dry_run=True
    )
    found = at.ask(lambda desk: _planned(desk, wish))
    nothing = not (found.matched or found.capped)
    # Asked here, where no loop runs: inside one, Ctrl-C would wait for the answer.
    if not (nothing or how.dry_run) and _agreed(found, how.yes):
        plan = found
        found = at.ask(lambda desk: _begun(desk, wish, plan, how))
    if found.state != "planned" or not at.out.for_people:
        at.out.one(found, facts)
    if found.state != "planned" and not how.detach:
        ended(found)


async def _planned(desk: Desk, wish: OperationWish) -> OperationView:
    plan = await desk.start_operation(wish)
    await _preview(desk, plan)
    return plan


async def _begun(desk: Desk, wish: OperationWish, plan: OperationView, how: How) -> OperationView:
    begun = await desk.start_operation(
        OperationWish(
            action=wish.action,
            filter=wish.filter,
            rate=wish.rate,
            reason=wish.reason,
            confirm_count=None if plan.capped else plan.matched,
        )
    )
    assert begun.id is not None
    return begun if how.detach else await followed(desk, begun.id)


async def _preview(desk: Desk, plan: OperationView) -> None:
    types = ", ".join(f"{type} {n:,}" for type, n in list(plan.types.items())[:_SAMPLE])
    takes = ""
    if plan.rate and plan.matched:
        about = "at least" if plan.capped else "about"
        takes = f" At {plan.rate:g}/s: {about} {span(plan.matched / plan.rate)}."
    say(f"{_many(plan)} match{f' ({types})' if types else ''}.{takes}")
    for id in plan.sample[:_SAMPLE]:
        with suppress(UnknownTask):
            say(_line(await desk.task(id)))


def _many(plan: OperationView) -> str:
    return f"{plan.matched:,}" + (" or more" if plan.capped else "")


def _line(task: TaskView) -> str:
    return f"  {task.id}  {task.type}  {safe(task.last_error or '')}".rstrip()


def _agreed(plan: OperationView, yes: bool) -> bool:
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Stop(
            Exit.REFUSED,
            f"nothing was changed; to {plan.action} these {_many(plan)}, say so with --yes",
        )
    try:
        if click.confirm(f"{plan.action} these {_many(plan)}?", err=True):
            return True
    except click.Abort:  # Ctrl-C, or the end of all input
        say("\nnothing was changed")
        raise KeyboardInterrupt from None
    say("nothing was changed")
    return False


async def followed(desk: Desk, id: UUID, timeout: timedelta | None = None) -> OperationView:
    """Until its end, or until the time is over. Where nobody else does it, it is done here."""
    loop = asyncio.get_running_loop()
    over = None if timeout is None else loop.time() + timeout.total_seconds()
    driving = asyncio.create_task(_drive(desk))
    try:
        found = await desk.operation(id)
        with progress_bar(max(found.matched or 0, 1), found.action) as advance:
            told = 0
            while found.state not in _ENDED and (over is None or loop.time() < over):
                if driving.done():
                    driving.result()
                left = _LOOK if over is None else min(over - loop.time(), _LOOK)
                found = await desk.operation(id, wait=max(left, 0.0))
                advance(found.done + found.failed - told)
                told = found.done + found.failed
        return found
    except asyncio.CancelledError:
        say(f"it is not at its end; `holdfast operations wait {id}` goes on, `cancel` stops it")
        raise
    finally:
        driving.cancel()
        await asyncio.wait({driving})


async def _drive(desk: Desk) -> None:
    while True:
        if not await desk.drive_operations():
            await asyncio.sleep(_REST)


def ended(found: OperationView) -> None:
    """Where it did not do all that it was to do: an exit that says so."""
    again = f"holdfast operations wait {found.id}"
    match found.state:
        case "failed":
            raise Stop(Exit.FAILED, f"operation {found.id} broke off: {found.error}")
        case "cancelled":
            raise Stop(Exit.CONFLICT, f"operation {found.id} was cancelled after {found.done:,}")
        case "done" if found.failed:
            said = f"{found.failed:,} were not changed: they had moved on, or something needs them"
            raise Stop(Exit.CONFLICT, said)
        case "pending" | "running":
            raise Stop(Exit.TIMED_OUT, f"operation {found.id} goes on; wait longer: {again}")


def matched(found: OperationView) -> str | int | None:
    return f"{found.matched}+" if found.capped else found.matched


def facts(found: OperationView) -> Iterator[tuple[str, Any]]:
    yield "operation", found.id
    yield "action", found.action
    yield "filter", found.filter
    yield "state", found.state
    yield "matched", matched(found)
    yield "done", found.done
    yield "failed", found.failed
    yield "rate", found.rate
    yield "by", found.actor
    yield "tenant", found.tenant_id
    yield "reason", found.reason
    yield "error", found.error
    yield "created", found.created_at
    yield "ended", found.ended_at
