"""What is asked of an app about tasks that are there: their ends, lists, dead letters, leases; and
queues and limits."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import UNSET, UnsetType

from holdfast.answers import (
    Cancelling,
    Ending,
    LeaseView,
    Letters,
    LimitKind,
    Page,
    TaskFilter,
)
from holdfast.client import AnyTask, Client, task_id
from holdfast.errors import InvalidInput
from holdfast.explain import Reason, explain
from holdfast.function import Function
from holdfast.notifier import EVERYTHING, Hint
from holdfast.observer import Observer
from holdfast.observers.many import Many
from holdfast.tasks.durations import Duration
from holdfast.tasks.edit import edit_of
from holdfast.tasks.task import Task, TaskStatus
from holdfast.upkeep.letters import tell_of_recovered

if TYPE_CHECKING:
    from holdfast.desk.local import LocalDesk
    from holdfast.desk.papers import LimitView

__all__ = ["Operating"]

_PAGE = 1000


class Operating:
    """A part of `Holdfast`."""

    observers: tuple[Observer, ...]

    async def _client(self) -> Client:
        raise NotImplementedError

    async def desk(self) -> "LocalDesk":
        raise NotImplementedError

    @property
    def default_tries(self) -> int:
        raise NotImplementedError

    async def wait_for(self, task: AnyTask, timeout: float | timedelta | None = None) -> Ending:
        return await (await self._client()).wait_for(task, timeout=timeout)

    async def state_of(self, task: AnyTask) -> Task:
        return await (await self._client()).state_of(task)

    async def explain(self, task: AnyTask) -> list[Reason]:
        """Why it is not running, most important first, and what to do."""
        store = (await self._client()).store
        return explain(await store.standing(task_id(task)), await store.workers())

    async def cancel(self, task: AnyTask) -> Cancelling:
        return await (await self._client()).cancel(task)

    async def retry(self, task: AnyTask) -> bool:
        """A new life for what failed or was cancelled; what waits for its time goes ahead."""
        return bool(await (await self._client()).retry([task]))

    async def edit(
        self,
        task: AnyTask,
        *,
        priority: int | UnsetType = UNSET,
        queue: str | UnsetType = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        requires: Iterable[str] | UnsetType = UNSET,
        delay: Duration | UnsetType = UNSET,
        run_at: datetime | UnsetType = UNSET,
        expires: Duration | UnsetType | None = UNSET,
        max_tries: int | UnsetType | None = UNSET,
    ) -> bool:
        """Change what has not begun; False: it runs, has ended, or was asked to cancel. What is
        left out stays. `delay` and `expires` count from now; `expires=None`: never;
        `max_tries=None`: the default of whoever runs it. With another queue, priority, time, tags
        or requirements it stands behind those that wait there already."""
        wish = edit_of(
            priority=priority,
            queue=queue,
            tags=tags,
            requires=requires,
            delay=delay,
            run_at=run_at,
            expires=expires,
            max_tries=max_tries,
        )
        return await (await self._client()).edit(task_id(task), wish) == "edited"

    async def list_tasks(
        self,
        *,
        status: TaskStatus | str | None = None,
        queue: str | None = None,
        type: str | None = None,
        tenant: str | None = None,
        tag: str | None = None,
        user_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        try:
            wanted = None if status is None else TaskStatus(status)
        except ValueError:
            raise InvalidInput(f"status {status!r} is none of {', '.join(TaskStatus)}") from None
        filter = TaskFilter(
            status=wanted, queue=queue, type=type, tenant=tenant, tag=tag, user_id=user_id
        )
        client = await self._client()
        return await client.store.list_tasks(filter, cursor=cursor, limit=limit)

    async def list_dead_letters(
        self, *, queue: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Letters:
        """Newest first; `cursor`: the `next` of the page before."""
        page = await self.list_tasks(
            status=TaskStatus.FAILED, queue=queue, cursor=cursor, limit=limit
        )
        return Letters(page)

    async def replay_dead_letter(self, task: AnyTask) -> bool:
        """Give a task that failed for good a new life, with all its tries."""
        state = await self.state_of(task)
        return state.status is TaskStatus.FAILED and await self.retry(task)

    async def discard_dead_letter(self, task: AnyTask) -> bool:
        return bool(await (await self._client()).store.discard([task_id(task)]))

    async def active_leases(self, limit: int | None = None) -> list[LeaseView]:
        """Who holds what until when, those that end first at the top: all, or at most `limit`."""
        store = (await self._client()).store
        found: dict[UUID, LeaseView] = {}
        after = None
        while True:
            most = _PAGE if limit is None else min(limit - len(found), _PAGE)
            page = await store.leases(after=after, limit=most)
            found |= {lease.task: lease for lease in page}  # one may be renewed, and come again
            if len(page) < most or len(found) == limit:
                return sorted(found.values(), key=lambda lease: lease.lease_timeout)
            after = page[-1].lease_timeout, page[-1].task

    async def reset_expired_leases(self) -> int:
        """Take back what dead workers held, now. Workers do so by themselves all the time."""
        client, count = await self._client(), 0
        while recovered := await client.store.recover(default_tries=self.default_tries):
            count += len(recovered)
            client.tell([EVERYTHING])
            await tell_of_recovered(client.store, Many(self.observers), recovered)
        return count

    async def pause_queue(self, queue: str) -> None:
        await (await self._client()).store.pause(queue)

    async def resume_queue(self, queue: str) -> None:
        client = await self._client()
        await client.store.resume(queue)
        client.tell([Hint("work", queue)])

    async def queue_depth(self, queue: str | None = None) -> int:
        """How many tasks wait: in one queue, or in all. They are counted one by one: of millions
        that takes a moment."""
        loads = await (await self._client()).store.queue_loads(exactly=True)
        return sum(
            load.ready + load.scheduled + load.blocked
            for load in loads
            if queue in (None, load.queue)
        )

    async def limits(self) -> "list[LimitView]":
        """All limits in force, and whether an operator or a function's code set them."""
        return await (await self.desk()).limits()

    async def set_limit(
        self,
        kind: LimitKind,
        name: "str | Function[..., Any, Any]",
        *,
        max_concurrent: int | None = None,
        max_concurrent_per_key: int | None = None,
        rate_limit: str | None = None,
    ) -> "LimitView":
        """Limit a `"type"` (a function), a `"queue"` or a `"tenant"` across all workers, in place
        of the limit before. On a function it goes before what its code says, until it is lifted.
        """
        from holdfast.desk.papers import LimitWish

        wish = LimitWish(
            kind=kind,
            name=_name(name),
            max_concurrent=max_concurrent,
            max_concurrent_per_key=max_concurrent_per_key,
            rate_limit=rate_limit,
        )
        return await (await self.desk()).set_limit(wish)

    async def lift_limit(
        self, kind: LimitKind, name: "str | Function[..., Any, Any]"
    ) -> "LimitView | None":
        """Take back what `set_limit` said. Answers what the code says, which holds again."""
        from holdfast.desk.papers import LimitPlace

        return await (await self.desk()).lift_limit(LimitPlace(kind=kind, name=_name(name)))


def _name(name: "str | Function[..., Any, Any]") -> str:
    return name.name if isinstance(name, Function) else name
