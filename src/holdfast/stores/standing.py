"""Where a task stands and what holds it back: for whoever asks why it does not run."""

from itertools import chain
from uuid import UUID

from holdfast.answers import Gate, Standing
from holdfast.errors import UnknownTask
from holdfast.stores.base import Base
from holdfast.tasks.lane import Lane

__all__ = ["Standings"]

_LINE = 1000  # of a lane's head this many are looked at
_OCCUPANTS = 10


class Standings(Base):
    """Keeps `holdfast.steering.Views.standing`."""

    async def standing(self, task: UUID) -> Standing:
        for (
            place, queue, type, version, tags, requires, tenant, key, pool, due, paused, ahead,
            cancel, reason, holder, left,
        ) in await self._call("standing", id=task, cap=_LINE):  # fmt: skip
            lane = Lane(
                queue=queue,
                type=type,
                version=version,
                tags=tuple(tags),
                requires=tuple(requires),
                tenant=tenant,
            )
            gates, occupied_by = await self._gates(task, lane, pool, key)
            return Standing(
                task=task,
                place=place,
                lane=lane,
                due=due,
                queue_paused=bool(paused),
                concurrency_key=key,
                gates=gates,
                ahead=ahead,
                occupied_by=occupied_by,
                cancel_requested=bool(cancel),
                reason=reason,
                holder=holder,
                lease_left=left,
            )
        raise UnknownTask([task])

    async def _gates(
        self, task: UUID, lane: Lane, pool: int | None, key: str | None
    ) -> tuple[tuple[Gate, ...], tuple[UUID, ...]]:
        rows = await self._call(
            "standing_gates",
            id=task,
            type=lane.type,
            queue=lane.queue,
            tenant=lane.tenant,
            pool=pool,
            key=key,
            most=_OCCUPANTS,
        )
        gates = tuple(
            Gate(
                kind=row[0],
                name=row[1],
                max_running=row[2],
                running=row[3],
                max_per_key=row[4],
                running_of_key=row[5],
                rate_opens=row[6],
            )
            for row in rows
        )
        occupants = dict.fromkeys(chain.from_iterable(self._uuids(row[7]) for row in rows))
        return gates, tuple(occupants)[:_OCCUPANTS]
