"""`holdfast stats`: the numbers of the whole fleet."""

from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.cells import span
from holdfast.cli.options import LABELS
from holdfast.cli.render import table
from holdfast.desk.shapes import QueueNumbers, Stats

__all__ = ["stats"]

_COUNTS = ("pending", "claimable", "running", "load", "scheduled", "waiting", "failed")


@click.command()
@click.option("--queues", type=LABELS, help="Name these in any case, with zeroes.")
@asks
def stats(at: Asking, queues: tuple[str, ...] | None) -> None:
    """Queues, workers, leases and recoveries in numbers: as GET /distributed/stats says them."""
    found = at.ask(lambda desk: desk.stats(queues or ()))
    if not at.out.for_people:
        at.out.one(found, lambda _: ())
        return
    table(["queue", *_COUNTS, "oldest", "wanted"], list(_rows(found)), cells=at.out.cells)
    click.echo()
    at.out.facts(_facts(found))


def _rows(found: Stats) -> Iterator[list[Any]]:
    for name, numbers in found.queues.items():
        shown = f"{name} (paused)" if numbers.paused else name
        yield [shown, *_row(numbers), found.desired_workers.get(name, 0)]
    if len(found.queues) != 1:
        yield ["total", *_row(found.totals), sum(found.desired_workers.values())]


def _row(numbers: QueueNumbers) -> list[Any]:
    age = numbers.oldest_pending_age_seconds
    return [*(getattr(numbers, name) for name in _COUNTS), span(age) if age else None]


def _facts(found: Stats) -> Iterator[tuple[str, Any]]:
    workers, leases = found.workers, found.leases
    yield "workers", f"{workers.active} active, {workers.draining} draining, {workers.stale} stale"
    yield "leases", f"{leases.active} active, {leases.expired} expired"
    yield "recovered", found.recovery.recovered_total
    yield "server time", found.server_time
