"""`holdfast queues`: how full they are, and why nothing runs."""

from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.cells import span
from holdfast.cli.groups import Near
from holdfast.cli.render import Column
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import QueueView, WhyView

__all__ = ["QUEUES", "queues"]


def _count(name: str) -> Column:
    return Column(
        name, lambda q: f"{getattr(q, name)}+" if _is_floor(q, name) else getattr(q, name)
    )


def _is_floor(queue: QueueView, name: str) -> bool:
    return queue.capped and getattr(queue, name) >= 10_000


QUEUES = (
    Column("queue", lambda q: q.queue),
    Column("state", lambda q: "paused" if q.paused else "open"),
    *map(_count, ("claimable", "running", "scheduled", "waiting", "blocked", "failed")),
    Column("oldest", lambda q: _age(q)),
    Column("expired", lambda q: q.expired_leases),
)
_WHY = (Column("why", lambda w: w.why), Column("what to do", lambda w: w.advice))


def _age(queue: QueueView) -> str | None:
    age = queue.oldest_pending_age_seconds
    return span(age) if age else None


@click.group(cls=Near)
def queues() -> None:
    """Queues: how full they are, pause and resume, why nothing runs."""


@queues.command()
@asks
def ls(at: Asking) -> None:
    """All queues with their counts. Counts stop at 10,000: then they end in +."""
    at.out.many(at.ask(lambda desk: desk.queues()), QUEUES)


@queues.command()
@click.argument("queue")
@asks
def show(at: Asking, queue: str) -> None:
    """One QUEUE; zeroes where nobody has used it."""
    at.out.one(at.ask(lambda desk: desk.queue(queue)), _facts)


@queues.command()
@click.argument("queue")
@asks
def pause(at: Asking, queue: str) -> None:
    """Start nothing more of a QUEUE. What runs goes on, what comes waits."""
    at.out.one(at.ask(lambda desk: desk.pause(queue)), _facts)


@queues.command()
@click.argument("queue")
@asks
def resume(at: Asking, queue: str) -> None:
    """Let a paused QUEUE go on."""
    at.out.one(at.ask(lambda desk: desk.resume(queue)), _facts)


@queues.command()
@click.argument("queue")
@asks
def why(at: Asking, queue: str) -> None:
    """Why nothing of a QUEUE runs, or runs no faster, and what to do."""

    async def both(desk: Desk) -> tuple[QueueView, list[WhyView]]:
        return await desk.queue(queue), await desk.queue_why(queue)

    found, reasons = at.ask(both)
    if not at.out.for_people:
        at.out.many(reasons, _WHY)
        return
    at.out.line(f"{found.queue}: {found.claimable} claimable, {found.running} running")
    for reason in reasons:
        at.out.line(f"  {reason.why}")
        if reason.advice:
            at.out.line(f"    {reason.advice}")


def _facts(queue: QueueView) -> Iterator[tuple[str, Any]]:
    for column in QUEUES:
        yield column.title, column.value(queue)
