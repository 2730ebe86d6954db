"""Attempts that run for far longer than others of their kind are told of once."""

from datetime import timedelta
from typing import Literal

from holdfast.answers import LeaseView, TaskFilter
from holdfast.errors import InvalidInput
from holdfast.observer import Observer, Stuck
from holdfast.store import Store
from holdfast.tasks.task import TaskStatus

__all__ = ["OnStuck", "StuckTasks", "check_on_stuck"]

OnStuck = Literal["report", "recover"]

_LEAST = timedelta(minutes=10)
_TIMES = 10  # the length that 95 of 100 attempts of the type stay within
_SAMPLE = 100
_EVERY = timedelta(seconds=30)
_OFTEN = timedelta(milliseconds=200)
_ONCE = timedelta(days=30)


def check_on_stuck(value: str) -> OnStuck:
    if value not in ("report", "recover"):
        raise InvalidInput(f"on_stuck is 'report' or 'recover', not {value!r:.80}")
    return value  # type: ignore[return-value]


class StuckTasks:
    """`after`: how long is too long; None: ten times what is usual for the type, and at least ten
    minutes. With `recover` the lease is withdrawn, and the task runs again elsewhere."""

    def __init__(
        self, store: Store, observer: Observer, *, after: timedelta | None, on_stuck: OnStuck
    ) -> None:
        self._store, self._observer = store, observer
        self._after, self._on_stuck = after, on_stuck
        self.every = _EVERY if after is None else min(_EVERY, max(_OFTEN, after / 4))

    async def sweep(self) -> int:
        """Answers how many leases were withdrawn."""
        if not await self._store.take_turn("stuck", self.every * 0.8):  # one looks for all
            return 0
        usual: dict[str, timedelta] = {}
        withdrawn = 0
        for lease in await self._store.leases(older_than=self._after or _LEAST):
            if lease.type not in usual:
                usual[lease.type] = await self._patience(lease.type)
            if _age(lease) >= usual[lease.type]:
                withdrawn += await self._tell(lease)
        return withdrawn

    async def _patience(self, type: str) -> timedelta:
        if self._after is not None:
            return self._after
        done = TaskFilter(status=TaskStatus.DONE, type=type)
        page = await self._store.list_tasks(done, limit=_SAMPLE)
        lengths = sorted(
            task.finished_at - task.started_at
            for task in page.tasks
            if task.finished_at and task.started_at
        )
        if not lengths:
            return _LEAST
        return max(_LEAST, _TIMES * lengths[int(len(lengths) * 0.95)])

    async def _tell(self, lease: LeaseView) -> int:
        gone = self._on_stuck == "recover" and await self._store.revoke(lease.task, lease.fence)
        # Whichever worker has the turn next: each attempt is told of once.
        if gone or await self._store.take_turn(f"stuck:{lease.task}:{lease.fence}", _ONCE):
            stuck = Stuck(
                task=lease.task,
                type=lease.type,
                queue=lease.queue,
                worker=lease.worker_name or str(lease.worker),
                seconds=_age(lease).total_seconds(),
                withdrawn=gone,
            )
            self._observer.stuck([stuck])
        return int(gone)


def _age(lease: LeaseView) -> timedelta:
    """By the store's clock."""
    now = lease.lease_timeout - timedelta(seconds=lease.seconds_left)
    return now - lease.started_at
