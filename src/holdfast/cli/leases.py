"""`holdfast leases`: who holds what until when."""

import asyncio
from datetime import timedelta
from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.cells import plain_json, span
from holdfast.cli.groups import Near
from holdfast.cli.options import SPAN
from holdfast.cli.render import Column, drawn, say
from holdfast.desk.desk import Desk
from holdfast.desk.leases import all_leases
from holdfast.desk.shapes import LeaseShape

__all__ = ["LEASES", "leases"]


def left(lease: LeaseShape) -> str:
    return span(lease.seconds_left) if lease.seconds_left >= 0 else "EXPIRED"


LEASES = (
    Column("task", lambda e: e.task_id),
    Column("type", lambda e: e.type),
    Column("queue", lambda e: e.queue),
    Column("holder", lambda e: e.worker_id),
    Column("fence", lambda e: e.fence),
    Column("try", lambda e: e.try_count),
    Column("since", lambda e: e.started_at),
    Column("until", lambda e: e.lease_timeout),
    Column("left", left),
)


@click.group(cls=Near)
def leases() -> None:
    """Leases: who holds what until when."""


def _which(function: Any) -> Any:
    for option in (
        click.option(
            "--limit",
            type=click.IntRange(1),
            default=500,
            show_default=True,
            help="At most so many.",
        ),
        click.option("--expiring", type=SPAN, help="Only those that end within so long."),
        click.option("--worker", help="Only those of this worker."),
        click.option("--expired", is_flag=True, help="Only those past their end."),
    ):
        function = option(function)
    return function


async def _found(
    desk: Desk, expired: bool, worker: str | None, expiring: timedelta | None, most: int
) -> list[LeaseShape]:
    found = await all_leases(desk, expired=expired, worker=worker, most=most)
    if expiring is not None:
        found = [e for e in found if e.seconds_left <= expiring.total_seconds()]
    return found


@leases.command()
@_which
@asks
def ls(
    at: Asking, expired: bool, worker: str | None, expiring: timedelta | None, limit: int
) -> None:
    """Leases that are held, those that end first at the top."""
    found = at.ask(lambda desk: _found(desk, expired, worker, expiring, limit + 1))
    at.out.many(found[:limit], LEASES)
    if len(found) > limit:
        say(f"there are more: --limit {10 * limit}")


@leases.command()
@_which
@click.option("--every", type=SPAN, default="1s", show_default=True, help="Look so often.")
@click.option("--times", type=click.IntRange(1), help="End after so many looks.")
@asks
def watch(
    at: Asking,
    expired: bool,
    worker: str | None,
    expiring: timedelta | None,
    limit: int,
    every: timedelta,
    times: int | None,
) -> None:
    """The same, again and again; in a pipe as JSON, one look a line."""

    async def looking(desk: Desk) -> None:
        looks = 0
        with _screen(at) as show:
            while True:
                show(await _found(desk, expired, worker, expiring, limit))
                looks += 1
                if looks == times:
                    return
                await asyncio.sleep(every.total_seconds())

    at.ask(looking)


class _screen:  # noqa: N801 - used as a function
    """Draws over what it has drawn on a terminal; writes lines elsewhere."""

    def __init__(self, at: Asking) -> None:
        self._at = at
        self._live: Any = None

    def __enter__(self) -> Any:
        if not (self._at.out.is_terminal and self._at.out.for_people):
            return self._line
        from rich.live import Live

        self._live = Live(auto_refresh=False)
        self._live.start()
        return self._draw

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def _line(self, found: list[LeaseShape]) -> None:
        click.echo(plain_json(found))

    def _draw(self, found: list[LeaseShape]) -> None:
        from holdfast.cli.cells import Cells

        rows = [[column.value(lease) for column in LEASES] for lease in found]
        titles = [column.title for column in LEASES]
        assert self._live
        self._live.update(drawn(titles, rows, None, Cells(relative=True)), refresh=True)
