"""All that is known of one task, told to people."""

import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click
import msgspec

from holdfast.cli import timeline
from holdfast.cli.cells import safe, safe_json
from holdfast.cli.following import refusals
from holdfast.cli.render import Printer
from holdfast.clock import here
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import AttemptView, EventView, TaskView, WhyView

__all__ = ["Story", "about", "tell"]

_ENDED = ("done", "failed", "cancelled")


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A task, its attempts, what came too late for them, and what holds it back."""

    task: TaskView
    attempts: list[AttemptView]
    refused: list[EventView]
    why: list[WhyView]

    @classmethod
    async def of(cls, desk: Desk, id: UUID) -> "Story":
        task = await desk.task(id)
        attempts = await desk.attempts(id)
        was_lost = any(attempt.ended == "lost" for attempt in attempts)
        refused = await refusals(desk, id) if was_lost else []
        why = [] if task.status in _ENDED else await desk.why(id)
        return cls(task=task, attempts=attempts, refused=refused, why=why)


def tell(out: Printer, story: Story, *, arguments: bytes | None = None) -> None:
    if not out.for_people:
        out.one(story, lambda _: ())
        return
    out.facts(about(story.task))
    if arguments is not None:
        out.facts([("arguments", safe_json(arguments.decode("utf-8", "replace")))])
    _timeline(story)
    for reason in story.why:
        click.echo(f"why: {_block(reason.why)}")
        if reason.advice:
            click.echo(f"     {_block(reason.advice)}")
    last = next((a.error for a in reversed(story.attempts) if a.error), None)
    if last and last.traceback:
        click.echo()
        click.echo(safe(last.traceback.rstrip(), keep="\n"))


def about(task: TaskView) -> Iterator[tuple[str, Any]]:
    yield "task", task.id
    yield "type", f"{task.type}@{task.version}" if task.version else task.type
    why = (task.reason or "").partition("\n")[0]  # the rest, such as a diff, is told below
    yield "status", f"{task.status} ({why})" if why else task.status
    yield "queue", task.queue
    yield "priority", task.priority or None
    yield "tenant", task.tenant_id if task.tenant_id != "default" else None
    yield "user", task.user_id
    yield "tags", task.tags or None
    yield "requires", task.requires or None
    yield "tries", f"{task.try_count} of {task.max_tries or 'the default'}"
    yield "key", task.idempotency_key
    yield "parent", task.parent_id
    yield "cancel", "requested" if task.cancel_requested else None
    yield "holder", task.locked_by
    yield "lease until", task.lease_timeout
    yield "progress", _progress(task)
    yield "created", task.created_at
    yield "due", task.run_at if task.status in ("pending", "waiting") else None
    yield "expires", task.expires_at if task.finished_at is None else None
    yield "ended", task.finished_at
    yield "last error", task.last_error


def _block(text: str) -> str:
    """Its lines one below the other, and no line of it where one of ours could stand."""
    return "\n     ".join(safe(line) for line in text.split("\n"))


def _progress(task: TaskView) -> str | None:
    if task.progress is None:
        return None
    return f"{task.progress:g} % {task.progress_message or ''}".rstrip()


def _timeline(story: Story) -> None:
    signs = timeline.DRAWN if _speaks_unicode() else timeline.ASCII
    now = here()
    found = timeline.parts(story.task, story.attempts, now)
    click.echo()
    click.echo(f"timeline  {timeline.spent(found)}")
    drawn = timeline.lines(story.task, story.attempts, story.refused, now, signs=signs)
    for line in drawn:
        click.echo(f" {safe(line)}")


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
