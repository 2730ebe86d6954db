"""What happens in a store, event by event."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import UUID

import click

from holdfast.cli.asking import Asking
from holdfast.cli.render import Column, Printer, as_json, csv_rows, say
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import EventPage, EventView

__all__ = ["follow", "refusals"]

_PAUSE = 0.5
_PAGE = 500
EVENTS = (
    Column("seq", lambda e: e.seq),
    Column("at", lambda e: e.at),
    Column("event", lambda e: e.type),
    Column("task", lambda e: e.task_id),
    Column("fence", lambda e: e.fence),
    Column("worker", lambda e: e.worker_id),
    Column("by", lambda e: e.by),
    Column("error", lambda e: e.error or e.verb),
)


def follow(
    at: Asking, *, after: int | None, task: UUID | None, only: frozenset[str], forever: bool
) -> None:
    """Print them as they come."""

    async def print_all(desk: Desk) -> None:
        start = (await desk.newest_event() if forever else 0) if after is None else after
        if forever:
            say(f"following what happens after event {start}; Ctrl-C ends it")
        lines = Lines(at.out)
        ask = desk.events if task is None else partial(desk.task_events, task)
        async for event in _events(ask, start, forever):
            if not only or event.type in only:
                lines.write(event)

    at.ask(print_all)


async def _events(
    ask: Callable[[int, int], Awaitable[EventPage]], after: int, forever: bool
) -> AsyncIterator[EventView]:
    while True:
        page = await ask(after, _PAGE)
        for event in page.data:
            yield event
        moved, after = page.last > after, page.last
        if not moved:
            if not forever:
                return
            await asyncio.sleep(_PAUSE)


class Lines:
    """A table that never ends: no column can wait for the widest row to come."""

    def __init__(self, out: Printer) -> None:
        self._out, self._begun = out, False

    def write(self, event: EventView) -> None:
        match self._out.form:
            case "json" | "jsonl":
                as_json(event)
            case "csv":
                csv_rows([event], heading=not self._begun)
            case _:
                cells = [self._out.cells.text(column.value(event)) for column in EVENTS]
                click.echo("\t".join(cells))
        self._begun = True
        sys.stdout.flush()


async def refusals(desk: Desk, task: UUID) -> list[EventView]:
    """Late writes for a task that were refused."""
    found = [event async for event in _events(partial(desk.task_events, task), 0, False)]
    return [event for event in found if event.type == "write.refused"]
