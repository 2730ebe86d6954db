"""Reading what happened in order, none left out, while others write."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.answers import Event, EventPage
from holdfast.stores.base import Base, check_limit

__all__ = ["Following"]

_SCAN = 1000  # events that are looked through for those of one tenant
_PATIENCE = 200  # looks at open writers, 5 ms apart, before a read of events stops at the gap


class Following(Base):
    """For whoever follows the numbers of events. Keeps that part of `holdfast.steering.Views`."""

    async def events(
        self, after: int = 0, limit: int = 500, *, tenant: str | None = None
    ) -> EventPage:
        check_limit(limit)
        page = await self._settled_page("events", after, limit if tenant is None else _SCAN)
        events, last = [e for e in page if tenant in (None, e.tenant)], page.last
        if len(events) > limit:
            events = events[:limit]
            last = events[-1].seq
        return EventPage(events, last)

    async def task_events(self, task: UUID, after: int = 0, limit: int = 500) -> EventPage:
        check_limit(limit)
        return await self._settled_page("task_events", after, limit, id=task)

    async def newest_event(self) -> int:
        last: int = await self._value("newest_event")
        if await self._writers_are_through():  # whoever has a smaller number
            return last
        # Nobody knows which number is kept open: begin before the first that is missing.
        after = max(0, last - _SCAN)
        found = await self._events("events", after=after, limit=_SCAN)
        return _whole_up_to(after, [event.seq for event in found])

    async def _settled_page(self, verb: str, after: int, limit: int, **asked: Any) -> EventPage:
        found = await self._events(verb, after=after, limit=limit, **asked)
        whole = _whole_up_to(after, [event.seq for event in found])
        seen = found[-1].seq if found else after
        last = await self._settled_up_to(whole, seen)
        if whole < seen:
            # Once more: what was missing then is there now, or never comes.
            found = await self._events(verb, after=after, limit=limit, **asked)
            if len(found) == limit:  # it may have pushed out the last of those that were seen
                last = min(last, found[-1].seq)
        return EventPage([event for event in found if event.seq <= last], last)

    async def _events(self, verb: str, **asked: Any) -> list[Event]:
        return [
            Event(
                seq=seq,
                kind=kind,
                task=self._driver.uuid(id),
                fence=fence,
                worker=worker,
                by=by,
                at=self._at(at),
                error=error,
                verb=verb,
                type=type,
                queue=queue,
                tenant=tenant,
            )
            for (
                seq, kind, id, fence, worker, by, at, error, verb, type, queue, tenant,
            ) in await self._call(verb, **asked)
        ]  # fmt: skip

    async def _settled_up_to(self, whole: int, last: int) -> int:
        """How far nothing can come in between any more, of the numbers that were read just now:
        none is missing up to `whole`, and `last` is the last one.

        A number is missing: its writer has not committed yet, or never will. Whoever may still
        write it holds a lock by now; once they are through, what is missing stays missing: up to
        the last one that was seen. Younger numbers may have gaps of their own.
        """
        return last if whole == last or await self._writers_are_through() else whole

    async def _writers_are_through(self) -> bool:
        """Waits for those who write just now, so long and no longer."""
        open_writers = await self._writers()
        for _ in range(_PATIENCE):
            if not open_writers:
                return True
            await asyncio.sleep(0.005)
            open_writers &= await self._writers()
        return False

    async def _writers(self) -> set[str]:
        return {row[0] for row in await self._call("writers")}


def _whole_up_to(after: int, numbers: Sequence[int]) -> int:
    """The last number before the first that is missing."""
    for number in numbers:
        if number != after + 1:
            break
        after = number
    return after
