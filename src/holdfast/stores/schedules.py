"""Functions that run by the clock: from when on their times are not planned yet."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.stores.producing import Producing
from holdfast.tasks.cron import Cron
from holdfast.tasks.task import Draft

__all__ = ["Schedules"]


class Schedules(Producing):
    """Keeps `holdfast.store.Schedules`."""

    async def see_schedules(
        self, known: Sequence[tuple[str, Cron]]
    ) -> tuple[datetime, list[datetime]]:
        now = self._at(await self._value("now"))
        found = await self._value(
            "see_schedules",
            types=[type for type, _ in known],
            crons=[cron.expression for _, cron in known],
            timezones=[cron.timezone for _, cron in known],
            firsts=[cron.after(now) for _, cron in known],
        )
        return now, [self._at(at) for at in found or ()]

    async def plan(
        self, type: str, cron: Cron, *, seen: datetime, next: datetime, drafts: Sequence[Draft]
    ) -> bool:
        async with self._driver.transaction() as conn:
            moved = await self._driver.call_on(
                conn,
                "move_schedule",
                type=type,
                cron=cron.expression,
                timezone=cron.timezone,
                seen=seen,
                next=next,
            )
            if moved:
                await self.enqueue(drafts, conn=conn)
        return bool(moved)
