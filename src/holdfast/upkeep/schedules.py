"""Tasks of functions that run by the clock, planned shortly before their time.

Any worker that knows a function plans for it, and they need not agree on who: a time is planned
by whoever moves its schedule on, in one transaction, and planned ahead it comes on time.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from holdfast.client import Client
from holdfast.errors import InvalidInput, KeyConflict
from holdfast.function import Function
from holdfast.tasks.cron import Cron

__all__ = ["EVERY", "Planner"]

logger = logging.getLogger("holdfast.upkeep")
EVERY = 10.0  # seconds between two looks
_AHEAD = timedelta(seconds=30)
_SLACK = timedelta(minutes=1)  # that two workers may see the time apart


class Planner:
    """`ahead`: how long before its time a task is made. `next_in`: seconds until there is more to
    do, as of the last sweep."""

    def __init__(
        self,
        client: Client,
        functions: Callable[[], Iterable[Function[..., Any, Any]]],
        *,
        ahead: timedelta = _AHEAD,
    ) -> None:
        self._client, self._functions, self._ahead = client, functions, ahead
        self.next_in: float | None = None

    async def sweep(self) -> int:
        """Answers how many tasks were planned."""
        self.next_in = None
        known: dict[tuple[str, Cron], Function[..., Any, Any]] = {}
        for function in self._functions():
            if (cron := function.traits.cron) is not None:
                known[function.name, cron] = function
        if not known:
            return 0
        now, nexts = await self._client.store.see_schedules(list(known))
        planned = 0
        for ((_, cron), function), at in zip(known.items(), nexts, strict=True):
            next_at = at
            if at > cron.after(now + self._ahead + _SLACK):  # the clock was ahead
                next_at = cron.after(now)
                await self._client.plan(function.name, cron, seen=at, next=next_at, drafts=[])
            elif at <= now + self._ahead:
                next_at = cron.after(now + self._ahead)
                planned += await self._plan(function, cron, (at, next_at), now)
            left = max((next_at - now).total_seconds(), 0.0)
            self.next_in = left if self.next_in is None else min(self.next_in, left)
        return planned

    async def _plan(
        self,
        function: Function[..., Any, Any],
        cron: Cron,
        span: tuple[datetime, datetime],
        now: datetime,
    ) -> int:
        """What was missed while no worker was there is made up for once: by its last time."""
        seen, end = span
        ticks = [cron.last(seen, now)] if seen <= now else [seen]
        while (tick := cron.after(ticks[-1])) < end:
            ticks.append(tick)
        type = function.name
        try:
            drafts = [function.tick(tick, now) for tick in ticks]
            moved = await self._client.plan(type, cron, seen=seen, next=end, drafts=drafts)
        except (InvalidInput, KeyConflict) as error:  # in nobody else's way
            logger.error("%s is not planned for %s: %s", type, ticks[0].isoformat(), error)
            return 0
        return len(drafts) if moved else 0
