"""Bulk operations, bit by bit: each is driven by one process at a time, under its own lease."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast.answers import TaskFilter
from holdfast.errors import HoldfastError, InvalidInput, StoreUnreachable
from holdfast.ids import new_grant
from holdfast.records import Operation
from holdfast.store import Store

__all__ = ["Driver"]

_PAGE = 500
_SLICE = 0.5  # seconds of a rate that are done at once


class _Far(NamedTuple):
    """How far it is."""

    position: str | None
    done: int
    failed: int


class Driver:
    """Drives what is open. `moved` is called where tasks may have become ready."""

    def __init__(
        self,
        store: Store,
        moved: Callable[[], None] = lambda: None,
        *,
        lease: timedelta = timedelta(seconds=30),
    ) -> None:
        self._store, self._moved, self._lease = store, moved, lease

    async def sweep(self) -> int:
        """One operation from where it stands to its end, if there is one to be had."""
        grant = new_grant()
        found = await self._store.take_operations(grant, lease=self._lease)
        for operation in found:
            await self._drive(operation, grant)
        return len(found)

    async def _drive(self, operation: Operation, grant: UUID) -> None:
        try:
            filter = msgspec.convert(operation.filter, TaskFilter)
            await self._walk(operation, grant, filter)
        except StoreUnreachable:
            raise  # somebody goes on from where it stands
        except (HoldfastError, msgspec.ValidationError) as error:
            await self._store.end_operation(operation.id, grant, "failed", error=str(error)[:1000])

    async def _walk(self, operation: Operation, grant: UUID, filter: TaskFilter) -> None:
        done, failed, cursor = operation.done, operation.failed, operation.position
        size = _PAGE if operation.rate is None else max(1, min(_PAGE, int(operation.rate * _SLICE)))
        loop = asyncio.get_running_loop()
        while True:
            began, place = loop.time(), cursor
            page = await self._store.list_tasks(filter, cursor=cursor, limit=size)
            ids = [task.id for task in page.tasks]
            moved = await self._act(operation.action, ids) if ids else 0
            done, failed, cursor = done + moved, failed + len(ids) - moved, page.next
            if moved:
                self._moved()
            # Of the last page the place is kept: whoever goes on from there does it again, not all.
            far = _Far(place if cursor is None else cursor, done, failed)
            if not await self._advance(operation, grant, far):
                return
            if cursor is None:
                await self._store.end_operation(operation.id, grant)
                return
            if operation.rate is not None:
                over = began + len(ids) / operation.rate
                if not await self._wait(operation, grant, far, over):
                    return

    async def _wait(self, operation: Operation, grant: UUID, far: "_Far", over: float) -> bool:
        """For the rate; False: it was cancelled meanwhile, or somebody else drives it."""
        loop, turn = asyncio.get_running_loop(), self._lease.total_seconds() / 3
        while (left := over - loop.time()) > 0:
            await asyncio.sleep(min(left, turn))
            if left > turn and not await self._advance(operation, grant, far):
                return False
        return True

    async def _advance(self, operation: Operation, grant: UUID, far: "_Far") -> bool:
        return await self._store.advance_operation(
            operation.id,
            grant,
            position=far.position,
            done=far.done,
            failed=far.failed,
            lease=self._lease,
        )

    async def _act(self, action: str, ids: Sequence[UUID]) -> int:
        match action:
            case "cancel":
                answers = await self._store.cancel(ids)
                return sum(answer in ("cancelled", "requested") for answer in answers.values())
            case "retry" | "replay":
                return len(await self._store.retry(ids))
            case "discard":
                return len(await self._store.discard(ids))
            case _:
                raise InvalidInput(f"no such action: {action!r:.80}")
