"""Chores that any process may do at any time: each call is one bounded pass."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from holdfast.answers import Expired, Recovered
from holdfast.ids import new_grant
from holdfast.stores.base import policy_of
from holdfast.stores.requests import KEPT as REQUESTS
from holdfast.stores.working import Working, seconds_of
from holdfast.tasks.lifecycle import Facts, Lost, Settlement, settle
from holdfast.tasks.names import check_delay, check_name
from holdfast.tasks.task import Lease, TaskStatus

__all__ = ["Upkeep"]

_AUDITS = timedelta(days=365)
_OPERATIONS = timedelta(days=30)
_ROLLUPS = timedelta(days=30)


class Upkeep(Working):
    """Keeps `holdfast.store.Upkeep`."""

    async def promote(self, batch: int = 500) -> int:
        moved: int = await self._value("promote", batch=batch)
        return moved

    async def recover(self, batch: int = 500, *, default_tries: int = 3) -> list[Recovered]:
        """Through the same door as every attempt's end: outcome `Lost`, and the store settles it
        where the lease has still lapsed, since its holder may renew in between."""
        rows = await self._call("lapsed", batch=batch)
        if not rows:
            return []
        lapsed = [(self._lease(row), row) for row in rows]
        states, parents = await self._settle(
            [(lease, _lost(row, default_tries)) for lease, row in lapsed],
            "recovery",
            default_tries,
            lapsed_only=True,
        )
        assert states is not None  # nothing that was lost is all done
        await self._wake(parents)
        taken = [
            Recovered(lease, row[3], _status(states[lease.task]), row[12])
            for lease, row in lapsed
            if lease.task in states
        ]
        if over := [one.lease.task for one in taken if one.status is TaskStatus.FAILED]:
            await self.wake_watchers(over)
        if taken:  # a crash before this costs the number, never a task
            await self._call("add_recovered", count=len(taken))
        return taken

    async def recovered_total(self) -> int:
        total: int = await self._value("recovered_total")
        return total

    async def revoke(self, task: UUID, fence: int) -> bool:
        return bool(await self._call("revoke", id=task, fence=fence, grant=new_grant()))

    async def expire(self, batch: int = 500) -> list[Expired]:
        ((ids, types, queues, parents),) = await self._call("expire", batch=batch)
        await self._wake(self._uuids(parents))
        ended = self._uuids(ids)
        if ended:
            await self.wake_watchers(ended)
        return [Expired(*one) for one in zip(ended, types or (), queues or (), strict=True)]

    async def sweep_wakes(self, batch: int = 500) -> int:
        moved: int = await self._value("sweep_wakes", batch=batch)
        return moved

    async def heard(self, worker: int) -> None:
        await self._call("heard", id=worker)

    async def mark_stale(self, after: timedelta) -> int:
        marked: int = await self._value("mark_stale", after=after.total_seconds())
        return marked

    async def forget_workers(
        self, after: timedelta = timedelta(days=1), *, batch: int = 500
    ) -> int:
        check_delay("after", after)
        forgotten: int = await self._value(
            "forget_workers", after=after.total_seconds(), batch=batch
        )
        return forgotten

    async def take_turn(self, chore: str, every: timedelta) -> bool:
        name = check_name("chore", chore)
        return bool(await self._call("take_turn", chore=name, every=seconds_of("every", every)))

    async def cleanup(
        self,
        retention: timedelta,
        *,
        dead_letters: timedelta | None = None,
        audits: timedelta = _AUDITS,
        batch: int = 500,
    ) -> int:
        check_delay("retention", retention)
        records: int = await self._value(
            "forget_records",
            audits=check_delay("audit retention", audits).total_seconds(),
            requests=REQUESTS.total_seconds(),
            operations=_OPERATIONS.total_seconds(),
            rollups=_ROLLUPS.total_seconds(),
            batch=batch,
        )
        forgotten: int = await self._value(
            "cleanup",
            retention=retention.total_seconds(),
            dead_letters=None
            if dead_letters is None
            else check_delay("dead letter retention", dead_letters).total_seconds(),
            batch=batch,
        )
        return records + forgotten

    def _lease(self, row: Sequence[Any]) -> Lease:
        return Lease(self._driver.uuid(row[0]), self._driver.uuid(row[1]), row[2])


def _lost(row: Sequence[Any], default_tries: int) -> Settlement:
    _, _, _, _, tries, max_tries, policy, alone, cancel, expired, in_company, recorded, _ = row
    facts = Facts(
        tries=tries,
        max_tries=max_tries or default_tries,
        retry=None if policy is None else policy_of(policy),
        alone=alone,
        cancel_requested=cancel,
        expired=expired,
    )
    return settle(facts, Lost(in_company, recorded), random.random())


def _status(state: str) -> TaskStatus:
    return TaskStatus.PENDING if state == "lost" else TaskStatus(state)
