"""The desk's verbs about bulk operations, over a store: looked at first, then driven bit by bit."""

import asyncio
from uuid import UUID

import msgspec

from holdfast.answers import TaskFilter
from holdfast.desk.base import Base
from holdfast.desk.filters import filter_of
from holdfast.desk.papers import OperationView, OperationWish, TaskSelection
from holdfast.desk.views import Matches, operation_view, plan_view
from holdfast.errors import InvalidInput, UnknownOperation
from holdfast.ids import new_id
from holdfast.notifier import EVERYTHING
from holdfast.records import Operation
from holdfast.tasks.task import TaskStatus
from holdfast.upkeep.operations import Driver

__all__ = ["Bulk"]

_CAP = 10_000  # matches are counted up to here
_MOST_CONFIRMED = 1_000_000
_PAGE, _PAGES = 500, 100  # that are looked through for the few that match
_LONGEST_WAIT, _LOOK = 60.0, 0.1
_ENDED = ("done", "failed", "cancelled")


class Bulk(Base):
    """Keeps its part of `holdfast.desk.desk.Desk`."""

    async def start_operation(self, wish: OperationWish) -> OperationView:
        filter = self._filter(wish.filter)
        _check(wish, filter)
        found = await self._match(filter, max(_CAP, (wish.confirm_count or 0) + 1))
        if wish.dry_run:
            return plan_view(wish, found, self._caller.name, filter.tenant)
        _check_confirmed(wish.confirm_count, found)
        id, named = new_id(), msgspec.to_builtins(filter)
        await self._note(
            "operation.start",
            str(id),
            action=wish.action,
            filter=named,
            matched=len(found),
            capped=found.capped or None,
            reason=wish.reason,
        )
        await self._store.start_operation(
            id,
            wish.action,
            named,
            actor=self._caller.name,
            rate=wish.rate,
            matched=len(found),
            capped=found.capped,
            tenant=self._caller.tenant,
            reason=wish.reason,
        )
        return await self.operation(id)

    async def operation(self, id: UUID, *, wait: float = 0.0) -> OperationView:
        loop = asyncio.get_running_loop()
        over = loop.time() + min(wait, _LONGEST_WAIT)
        while True:
            found = await self._operation(id)
            left = over - loop.time()
            if found.state in _ENDED or left <= 0:
                return operation_view(found)
            await asyncio.sleep(min(left, _LOOK))

    async def operations(
        self, *, before: UUID | None = None, limit: int = 50
    ) -> list[OperationView]:
        tenant = self._caller.tenant
        found = await self._store.operations(before=before, tenant=tenant, limit=limit)
        return [operation_view(one) for one in found]

    async def cancel_operation(self, id: UUID) -> OperationView:
        await self._operation(id)
        await self._note("operation.cancel", str(id))
        await self._store.cancel_operation(id)
        return await self.operation(id)

    async def drive_operations(self) -> int:
        return await Driver(self._store, lambda: self._client.tell([EVERYTHING])).sweep()

    async def _operation(self, id: UUID) -> Operation:
        found = await self._store.operation(id)
        if found is None or not self._is_ours(found.tenant):
            raise UnknownOperation(id)
        return found

    def _filter(self, wanted: TaskSelection) -> TaskFilter:
        own = self._caller.tenant
        if own is not None and wanted.tenant_id not in (None, own):
            raise InvalidInput(f"this key reaches tasks of tenant {own!r} only")
        return filter_of(wanted, wanted.tenant_id or own)

    async def _match(self, filter: TaskFilter, most: int) -> Matches:
        """Where no index knows the filter, among so many tasks: who drives it goes to the end."""
        found, cursor = Matches(), None
        for _ in range(most // _PAGE + _PAGES):
            page = await self._store.list_tasks(filter, cursor=cursor, limit=_PAGE)
            found.add(page.tasks)
            if (cursor := page.next) is None or len(found) >= most:
                break
        found.capped = cursor is not None
        return found


def _check(wish: OperationWish, filter: TaskFilter) -> None:
    if wish.rate is not None and not 0.01 <= wish.rate <= 100_000:
        raise InvalidInput(f"rate must be from 0.01 to 100,000 a second, got {wish.rate}")
    if wish.confirm_count is not None and not 0 <= wish.confirm_count <= _MOST_CONFIRMED:
        raise InvalidInput(f"confirm_count must be from 0 to {_MOST_CONFIRMED:,}")
    if wish.action in ("replay", "discard") and filter.status is not TaskStatus.FAILED:
        raise InvalidInput(f"{wish.action} is for dead letters: give the status failed")


def _check_confirmed(count: int | None, found: Matches) -> None:
    if count is None:
        return
    many = f"at least {len(found):,}" if found.capped else f"{len(found):,}"
    if len(found) > count:
        raise InvalidInput(
            f"{many} tasks match, and {count:,} were confirmed; "
            "look at a dry run, then confirm what it says"
        )
    if found.capped:
        raise InvalidInput(
            f"{many} tasks match, but not all could be counted, so {count:,} cannot be confirmed; "
            "narrow the filter by status, queue, type or tag, or begin it without confirm_count"
        )
