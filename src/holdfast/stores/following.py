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
        scan = limit if tenant is None else _SCAN
        found = await self._events("events", after=after, limit=scan)
        numbers = [event.seq for event in found]
        last = await self._settled_up_to(after, numbers)
        if _first_gap(after, numbers) is not None:
            found = await self._events("events", after=after, limit=scan)
        events = [e for e in found if e.seq <= last and tenant in (None, e.tenant)]
        if len(events) > limit:
            events = events[:limit]
            last = events[-1].seq
        return EventPage(events, last)

    async def task_events(self, task: UUID, after: int = 0, limit: int = 500) -> EventPage:
        check_limit(limit)
        asked = {"id": task, "after": after, "limit": limit}
        found = await self._events("task_events", **asked)
        last = await self._settled_up_to(after, [event.seq for event in found])
        # Once more: what was missing then is there now, or never comes.
        return EventPage(await self._events("task_events", **asked) if found else [], last)

    async def newest_event(self) -> int:
        last: int = await self._value("newest_event")
        await self._settled_up_to(last - 2, [last])  # whoever has a smaller number, is through
        return last

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

    async def _settled_up_to(self, after: int, numbers: Sequence[int]) -> int:
        """How far nothing can come in between any more, of the numbers that were read just now.

        A number is missing: its writer has not committed yet, or never will. Whoever may still
        write it holds a lock by now; once they are through, what is missing stays missing: up to
        the last one that was seen. Younger numbers may have gaps of their own.
        """
        gap = _first_gap(after, numbers)
        if gap is None:
            return numbers[-1] if numbers else after
        open_writers = await self._writers()
        for _ in range(_PATIENCE):
            if not open_writers:
                return numbers[-1]
            await asyncio.sleep(0.005)
            open_writers &= await self._writers()
        return gap - 1

    async def _writers(self) -> set[str]:
        return {row[0] for row in await self._call("writers")}


def _first_gap(after: int, numbers: Sequence[int]) -> int | None:
    for expected, number in enumerate(numbers, after + 1):
        if number != expected:
            return expected
    return None
