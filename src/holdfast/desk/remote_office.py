"""Limits, keys, the audit, logs, bulk operations and time series, over HTTP."""

from datetime import datetime, timedelta
from urllib.parse import quote
from uuid import UUID

import msgspec

from holdfast.desk import papers
from holdfast.desk.wire import PAGE, Asking
from holdfast.errors import UnknownKey, UnknownOperation, UnknownTask

__all__ = ["RemoteOffice"]


_NEWEST = papers.AuditQuery()


class RemoteOffice(Asking):
    """Keeps the last part of `holdfast.desk.desk.Desk`."""

    async def limits(self) -> list[papers.LimitView]:
        return await self._many("GET", "/v1/limits", papers.LimitView)

    async def set_limit(self, wish: papers.LimitWish) -> papers.LimitView:
        return await self._one("POST", "/v1/limits", papers.LimitView, body=wish)

    async def lift_limit(self, place: papers.LimitPlace) -> papers.LimitView | None:
        left = await self._many("POST", "/v1/limits:lift", papers.LimitView, body=place)
        return left[0] if left else None

    async def create_key(self, wish: papers.KeyWish) -> papers.NewKey:
        return await self._one("POST", "/v1/keys", papers.NewKey, body=wish)

    async def keys(self) -> list[papers.KeyView]:
        return await self._many("GET", "/v1/keys", papers.KeyView)

    async def key(self, id: str) -> papers.KeyView:
        return await self._one(
            "GET", f"/v1/keys/{quote(id, safe='')}", papers.KeyView, of=UnknownKey(id)
        )

    async def revoke_key(self, id: str) -> papers.KeyView:
        path = f"/v1/keys/{quote(id, safe='')}:revoke"
        return await self._one("POST", path, papers.KeyView, of=UnknownKey(id))

    async def audits(self, query: papers.AuditQuery = _NEWEST) -> papers.AuditPage:
        asked = msgspec.structs.asdict(query) | {"limit": min(query.limit, PAGE)}
        return await self._one("GET", "/v1/audit", papers.AuditPage, query=asked)

    async def logs(
        self, id: UUID, *, cursor: str | None = None, limit: int = 500
    ) -> papers.LogPage:
        query = {"cursor": cursor, "limit": min(limit, PAGE)}
        path = f"/v1/tasks/{id}/logs"
        return await self._one("GET", path, papers.LogPage, query=query, of=UnknownTask([id]))

    async def start_operation(self, wish: papers.OperationWish) -> papers.OperationView:
        return await self._one("POST", "/v1/operations", papers.OperationView, body=wish)

    async def operation(self, id: UUID, *, wait: float = 0.0) -> papers.OperationView:
        path, query = f"/v1/operations/{id}", {"wait": wait} if wait else None
        return await self._one(
            "GET",
            path,
            papers.OperationView,
            query=query,
            of=UnknownOperation(id),
            patience=wait,
        )

    async def operations(
        self, *, before: UUID | None = None, limit: int = 50
    ) -> list[papers.OperationView]:
        query = {"before": before, "limit": min(limit, PAGE)}
        return await self._many("GET", "/v1/operations", papers.OperationView, query=query)

    async def drive_operations(self) -> int:
        return 0  # an API does so by itself

    async def cancel_operation(self, id: UUID) -> papers.OperationView:
        path = f"/v1/operations/{id}:cancel"
        return await self._one("POST", path, papers.OperationView, of=UnknownOperation(id))

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
    ) -> papers.SeriesView:
        query = {
            "since": since.isoformat(),
            "until": until.isoformat(),
            "step": round(step.total_seconds()),
            "queue": queue,
            "type": type,
        }
        return await self._one("GET", "/v1/stats/timeseries", papers.SeriesView, query=query)
