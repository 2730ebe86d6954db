"""Which dead letters are meant, and doing something with many of them, shown first and paced."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

import click

from holdfast.cli.asking import Asking
from holdfast.cli.cells import safe, span
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.progress import progress_bar
from holdfast.cli.render import say
from holdfast.clock import here
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import Changed, TaskQuery, TaskView

__all__ = ["Wanted", "bulk", "found_letters"]

Verb = Literal["replay", "discard"]
_PAGE = 1000
_MOST = 100_000
_SAMPLE = 5
_PAST = {"replay": "replayed", "discard": "discarded"}


class Wanted(NamedTuple):
    queue: str | None
    type: str | None
    tenant: str | None
    error: str | None
    since: datetime | None

    @classmethod
    def of(
        cls,
        *,
        queue: str | None,
        type: str | None,
        tenant: str | None,
        error: str | None,
        since: timedelta | None,
    ) -> "Wanted":
        start = here() - since if since is not None else None
        return cls(queue, type, tenant, error, start)

    @property
    def is_everything(self) -> bool:
        return not any(self)

    def matches(self, task: TaskView) -> bool:
        if self.error and self.error.lower() not in (task.last_error or "").lower():
            return False
        return not (self.since and task.finished_at and task.finished_at < self.since)


async def letters(desk: Desk, wanted: Wanted) -> AsyncIterator[TaskView]:
    """Newest first, page by page."""
    cursor = None
    while True:
        query = TaskQuery(
            status="failed",
            queue=wanted.queue,
            type=wanted.type,
            tenant_id=wanted.tenant,
            cursor=cursor,
            limit=_PAGE,
        )
        page = await desk.tasks(query)
        for task in page.data:
            if wanted.matches(task):
                yield task
        if page.next_cursor is None or _is_past(wanted, page.data):
            return
        cursor = page.next_cursor


def _is_past(wanted: Wanted, page: Sequence[TaskView]) -> bool:
    """The rest failed even earlier."""
    last = page[-1].finished_at if page else None
    return bool(wanted.since and last and last < wanted.since)


async def found_letters(desk: Desk, wanted: Wanted, limit: int) -> list[TaskView]:
    found: list[TaskView] = []
    async for task in letters(desk, wanted):
        found.append(task)
        if len(found) == limit:
            break
    return found


def bulk(
    at: Asking,
    ids: Sequence[UUID],
    verb: Verb,
    *,
    rate: float | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> None:
    """By ids at once; by a filter after a look at what that is."""
    wanted = Wanted.of(**given)
    if bool(ids) + (not wanted.is_everything) + everything != 1:
        raise Stop(Exit.USAGE, "give ids, or filters such as --error and --type, or --all")

    async def done(desk: Desk) -> Changed:
        chosen = list(ids)
        if not ids:
            found = await found_letters(desk, wanted, _MOST)
            _preview(found, verb, rate)
            chosen = [task.id for task in found]
            if not chosen or dry_run or not _agreed(verb, len(chosen), yes):
                return Changed(changed=[])
        elif dry_run:
            say(f"{len(ids)} would be {_PAST[verb]}; nothing was changed")
            return Changed(changed=[])
        return await paced(getattr(desk, verb), chosen, rate, _PAST[verb])

    from holdfast.cli.tasks import told

    told(at.out, at.ask(done), f"it cannot be {_PAST[verb]}: it is no dead letter")


def _preview(found: Sequence[TaskView], verb: Verb, rate: float | None) -> None:
    many = f"{len(found):,}" + (" or more" if len(found) == _MOST else "")
    types = ", ".join(f"{type} {n:,}" for type, n in Counter(t.type for t in found).most_common(5))
    takes = f" At {rate:g}/s: about {span(len(found) / rate)}." if rate and found else ""
    say(f"{many} match{f' ({types})' if types else ''}.{takes}")
    for task in found[:_SAMPLE]:
        say(f"  {task.id}  {task.type}  {safe(task.last_error or '')}")


def _agreed(verb: Verb, count: int, yes: bool) -> bool:
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Stop(
            Exit.REFUSED, f"nothing was changed; to {verb} these {count:,}, say so with --yes"
        )
    if click.confirm(f"{verb} these {count:,}?", err=True):
        return True
    say("nothing was changed")
    return False


async def paced(
    act: Callable[[Sequence[UUID]], Any], ids: Sequence[UUID], rate: float | None, past: str
) -> Changed:
    """In small groups, so that no more than `rate` go each second."""
    size = _PAGE if rate is None else max(1, min(_PAGE, int(rate / 4)))
    changed: list[UUID] = []
    unchanged: list[UUID] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    with progress_bar(len(ids), past) as advance:
        for start in range(0, len(ids), size):
            if rate is not None:
                await asyncio.sleep(max(0.0, began + start / rate - loop.time()))
            group = ids[start : start + size]
            answer = await act(group)
            changed += answer.changed
            unchanged += answer.unchanged
            advance(len(group))
    return Changed(changed=changed, unchanged=unchanged)
