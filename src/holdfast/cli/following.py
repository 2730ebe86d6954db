"""What happens in a store, event by event."""

import asyncio
import sys
from collections.abc import AsyncIterator
from uuid import UUID

import click

from holdfast.cli.asking import Asking
from holdfast.cli.render import Column, Printer, as_json, csv_rows, say
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import EventView

__all__ = ["follow", "latest", "refusals"]

_PAUSE = 0.5
_PAGE = 500
_LOOK_BACK = 2500  # attempts that were lost, of all tasks
_LOOK_AHEAD = 5000  # events after a loss in which late writes are looked for
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
        start = (await latest(desk) if forever else 0) if after is None else after
        if forever:
            say(f"following what happens after event {start}; Ctrl-C ends it")
        lines = Lines(at.out)
        async for event in _events(desk, start, forever):
            if task in (None, event.task_id) and (not only or event.type in only):
                lines.write(event)

    at.ask(print_all)


async def _events(desk: Desk, after: int, forever: bool) -> AsyncIterator[EventView]:
    while True:
        page = await desk.events(after, _PAGE)
        for event in page.data:
            yield event
        moved, after = page.last > after, page.last
        if not moved or not page.data:
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


async def latest(desk: Desk) -> int:
    """The number of the last event, found by halving: whether there are any after a number is a
    cheap question."""
    low, high = 0, 1024
    while (await desk.events(high, 1)).data:
        low, high = high, high * 8
    while low < high:
        middle = (low + high) // 2
        if (await desk.events(middle, 1)).data:
            low = middle + 1
        else:
            high = middle
    return low


async def refusals(desk: Desk, task: UUID) -> list[EventView]:
    """Late writes for a task that were refused: who lost it writes, if at all, soon after."""
    after = await _first_loss(desk, task)
    if after is None:
        return []
    found: list[EventView] = []
    for _ in range(_LOOK_AHEAD // _PAGE):
        page = await desk.events(after, _PAGE)
        found += [e for e in page.data if e.type == "write.refused" and e.task_id == task]
        if not page.data:
            break
        after = page.last
    return found


async def _first_loss(desk: Desk, task: UUID) -> int | None:
    """The number of the event by which it was first lost, among the last that were."""
    before, first = None, None
    for _ in range(_LOOK_BACK // _PAGE):
        found = await desk.recoveries(before=before, limit=_PAGE)
        first = min((one.seq for one in found if one.task_id == task), default=first)
        if len(found) < _PAGE:
            break
        before = found[-1].seq
    return first
