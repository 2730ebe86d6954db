"""Numbers per minute, counted once from the sequence of events, far from the tasks' own way."""

from datetime import datetime, timedelta

from holdfast.errors import InvalidInput
from holdfast.records import Rollup
from holdfast.stores.following import Following

__all__ = ["Rollups"]

_MOST_POINTS = 2000
_MINUTE = timedelta(minutes=1)


class Rollups(Following):
    """Keeps `holdfast.archive.Rollups`."""

    async def roll_up(self, batch: int = 5000) -> int:
        mark: int | None = await self._value("rolled_up")
        after = mark or 0
        ((found, whole, last),) = await self._call("event_numbers", after=after, limit=batch)
        upto = await self._settled_up_to(whole, last)
        if upto == mark:  # none: from now on somebody counts, also where nothing has happened yet
            return 0
        counted = await self._value("roll_up", after=after, upto=upto)
        if not counted:
            return 0
        return int(found if upto == last else upto - after)

    async def rollups(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = _MINUTE,
        queue: str | None = None,
        type: str | None = None,
        tenant: str | None = None,
    ) -> list[Rollup]:
        _check(since, until, step)
        return [
            Rollup(
                at=self._at(row[0]),
                done=row[1],
                failed=row[2],
                cancelled=row[3],
                retried=row[4],
                lost=row[5],
                wait=tuple(row[6]),
                wait_seconds=row[7],
                run=tuple(row[8]),
                run_seconds=row[9],
            )
            for row in await self._call(
                "rollups",
                since=since,
                until=until,
                step=step.total_seconds(),
                queue=queue,
                type=type,
                tenant=tenant,
            )
        ]


def _check(since: datetime, until: datetime, step: timedelta) -> None:
    if since.tzinfo is None or until.tzinfo is None:
        raise InvalidInput("since and until must have a time zone")
    if step < _MINUTE or step % _MINUTE:
        raise InvalidInput(f"the step must be whole minutes, got {step}")
    if (until - since) / step > _MOST_POINTS:
        raise InvalidInput(
            f"a time series has at most {_MOST_POINTS:,} points; ask for a larger step"
        )
