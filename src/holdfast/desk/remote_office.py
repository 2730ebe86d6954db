"""Limits, keys, the audit, logs, bulk operations and time series, over HTTP."""

from datetime import datetime, timedelta
from urllib.parse import quote
from uuid import UUID

from holdfast.desk.papers import (
    AuditPage,
    KeyView,
    KeyWish,
    LimitPlace,
    LimitView,
    LimitWish,
    LogPage,
    NewKey,
    OperationView,
    OperationWish,
    SeriesView,
)
from holdfast.desk.wire import PAGE, Asking
from holdfast.errors import UnknownKey, UnknownOperation, UnknownTask

__all__ = ["RemoteOffice"]


class RemoteOffice(Asking):
    """Keeps the last part of `holdfast.desk.desk.Desk`."""

    async def limits(self) -> list[LimitView]:
        return await self._many("GET", "/v1/limits", LimitView)

    async def set_limit(self, wish: LimitWish) -> LimitView:
        return await self._one("POST", "/v1/limits", LimitView, body=wish)

    async def lift_limit(self, place: LimitPlace) -> LimitView | None:
        left = await self._many("POST", "/v1/limits:lift", LimitView, body=place)
        return left[0] if left else None

    async def create_key(self, wish: KeyWish) -> NewKey:
        return await self._one("POST", "/v1/keys", NewKey, body=wish)

    async def keys(self) -> list[KeyView]:
        return await self._many("GET", "/v1/keys", KeyView)

    async def key(self, id: str) -> KeyView:
        return await self._one("GET", f"/v1/keys/{quote(id, safe='')}", KeyView, of=UnknownKey(id))

    async def revoke_key(self, id: str) -> KeyView:
        path = f"/v1/keys/{quote(id, safe='')}:revoke"
        return await self._one("POST", path, KeyView, of=UnknownKey(id))

    async def audits(self, *, before: int | None = None, limit: int = 100) -> AuditPage:
        query = {"before": before, "limit": min(limit, PAGE)}
        return await self._one("GET", "/v1/audit", AuditPage, query=query)

    async def logs(self, id: UUID, *, cursor: str | None = None, limit: int = 500) -> LogPage:
        query = {"cursor": cursor, "limit": min(limit, PAGE)}
        path = f"/v1/tasks/{id}/logs"
        return await self._one("GET", path, LogPage, query=query, of=UnknownTask([id]))

    async def start_operation(self, wish: OperationWish) -> OperationView:
        return await self._one("POST", "/v1/operations", OperationView, body=wish)

    async def operation(self, id: UUID) -> OperationView:
        path = f"/v1/operations/{id}"
        return await self._one("GET", path, OperationView, of=UnknownOperation(id))

    async def operations(self, limit: int = 50) -> list[OperationView]:
        query = {"limit": min(limit, PAGE)}
        return await self._many("GET", "/v1/operations", OperationView, query=query)

    async def cancel_operation(self, id: UUID) -> OperationView:
        path = f"/v1/operations/{id}:cancel"
        return await self._one("POST", path, OperationView, of=UnknownOperation(id))

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
    ) -> SeriesView:
        query = {
            "since": since.isoformat(),
            "until": until.isoformat(),
            "step": round(step.total_seconds()),
            "queue": queue,
            "type": type,
        }
        return await self._one("GET", "/v1/stats/timeseries", SeriesView, query=query)
