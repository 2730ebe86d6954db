"""Bulk work that is done bit by bit. Whoever drives it holds it; nobody else does meanwhile."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from holdfast.errors import InvalidInput
from holdfast.records import Operation
from holdfast.stores.audits import json_text
from holdfast.stores.base import Base, check_limit
from holdfast.stores.working import seconds_of
from holdfast.tasks.names import check_name
from holdfast.tasks.task import plain

__all__ = ["Operations"]


class Operations(Base):
    """Keeps `holdfast.archive.Operations`."""

    async def start_operation(
        self,
        id: UUID,
        action: str,
        filter: dict[str, Any],
        *,
        actor: str,
        rate: float | None = None,
        matched: int | None = None,
        capped: bool = False,
        tenant: str | None = None,
        reason: str | None = None,
    ) -> None:
        if rate is not None and not 0 < rate <= 1_000_000:
            raise InvalidInput(f"the rate must be over 0 and at most 1,000,000 a second: {rate}")
        await self._call(
            "start_operation",
            id=id,
            action=check_name("action", action),
            filter=json_text("the filter of an operation", filter),
            rate=None if rate is None else float(rate),
            matched=matched,
            capped=capped,
            actor=plain(actor, 200),
            tenant=None if tenant is None else check_name("tenant", tenant),
            reason=None if reason is None else plain(reason, 1000),
        )

    async def operation(self, id: UUID) -> Operation | None:
        for row in await self._call("operations", id=id, before=None, tenant=None, limit=1):
            return self._operation(row)
        return None

    async def operations(
        self, *, before: UUID | None = None, tenant: str | None = None, limit: int = 50
    ) -> list[Operation]:
        check_limit(limit)
        rows = await self._call("operations", id=None, before=before, tenant=tenant, limit=limit)
        return [self._operation(row) for row in rows]

    async def cancel_operation(self, id: UUID) -> bool:
        return bool(await self._call("cancel_operation", id=id))

    async def take_operations(
        self, grant: UUID, *, lease: timedelta = timedelta(seconds=30), limit: int = 1
    ) -> list[Operation]:
        check_limit(limit)
        rows = await self._call(
            "take_operations", grant=grant, lease=seconds_of("lease", lease), limit=limit
        )
        return sorted((self._operation(row) for row in rows), key=lambda o: o.id)

    async def advance_operation(
        self,
        id: UUID,
        grant: UUID,
        *,
        position: str | None,
        done: int,
        failed: int,
        matched: int | None = None,
        lease: timedelta = timedelta(seconds=30),
    ) -> bool:
        return bool(
            await self._call(
                "advance_operation",
                id=id,
                grant=grant,
                position=position,
                done=done,
                failed=failed,
                matched=matched,
                lease=seconds_of("lease", lease),
            )
        )

    async def end_operation(
        self,
        id: UUID,
        grant: UUID,
        state: Literal["done", "failed"] = "done",
        *,
        error: str | None = None,
    ) -> bool:
        if state not in ("done", "failed"):
            raise InvalidInput(f"an operation ends as done or failed, not as {state!r}")
        said = None if error is None else plain(error, 1000)
        return bool(await self._call("end_operation", id=id, grant=grant, state=state, error=said))

    def _operation(self, row: Sequence[Any]) -> Operation:
        return Operation(
            id=self._driver.uuid(row[0]),
            action=row[1],
            filter=msgspec.json.decode(row[2]),
            rate=row[3],
            state=row[4],
            matched=row[5],
            capped=bool(row[6]),
            done=row[7],
            failed=row[8],
            position=row[9],
            actor=row[10],
            tenant=row[11],
            reason=row[12],
            error=row[13],
            created_at=self._at(row[14]),
            ended_at=self._driver.instant(row[15]),
        )
