"""One who does not keep to the protocol: takes a task, sleeps past its lease, and writes."""

import asyncio
from datetime import timedelta
from uuid import UUID

from holdfast.answers import WorkerRecord
from holdfast.ids import new_worker_id
from holdfast.store import Store
from holdfast.tasks.lifecycle import Done, Facts, settle
from holdfast.tasks.task import Claimed, TaskStatus

__all__ = ["TOO_LATE", "Zombie"]

TOO_LATE = b'"too late"'


class Zombie:
    """Speaks to the store itself, as no worker of ours would."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: Claimed | None = None

    async def take(self, task: UUID, lease: timedelta) -> None:
        """The only task that there is yet."""
        me = WorkerRecord(id=new_worker_id(), name="zombie")
        await self._store.register(me)
        lanes = list((await self._store.lanes()).lanes)
        answer = await self._store.claim(worker=me.id, lanes=lanes, want=1, lease=lease)
        (self._held,) = answer.tasks
        assert self._held.lease.task == task

    async def wake_up_and_write(self) -> bool:
        """Once another has ended the task; answers whether the write was refused."""
        assert self._held
        lease = self._held.lease
        while (await self._store.get(lease.task)).status is not TaskStatus.DONE:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        outcome = settle(Facts(tries=self._held.tries, max_tries=3), Done(TOO_LATE))
        return lease.task in await self._store.settle([(lease, outcome)])
