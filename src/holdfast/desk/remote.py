"""The desk over HTTP: the same answers, and the same errors, as `local` gives over a store."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from holdfast.desk import shapes
from holdfast.desk.graph import DEPTH, FlowGraph
from holdfast.desk.line import Line
from holdfast.desk.remote_office import RemoteOffice
from holdfast.desk.wire import PAGE, KeyTaken, TypeUnknown
from holdfast.errors import (
    HoldfastError,
    KeyConflict,
    NotPossible,
    UnknownTask,
    UnknownType,
    UnknownWorker,
)

__all__ = ["RemoteDesk"]


class RemoteDesk(RemoteOffice):
    """Keeps `holdfast.desk.desk.Desk`."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        super().__init__(Line(url, token))

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    async def submit(self, wishes: Sequence[shapes.NewTask]) -> list[shapes.Accepted]:
        try:
            return await self._many(
                "POST", "/v1/tasks/batch", shapes.Accepted, body={"tasks": _said(wishes)}
            )
        except KeyTaken as taken:
            first = wishes[0]
            key, tenant = first.idempotency_key or "", first.tenant_id or "default"
            raise _worded(KeyConflict(key, tenant, taken.existing), str(taken)) from None
        except TypeUnknown as unknown:
            names = {wish.type for wish in wishes}
            named = next((name for name in names if repr(name) in str(unknown)), wishes[0].type)
            raise _worded(UnknownType(named, ()), str(unknown)) from None

    async def tasks(self, query: shapes.TaskQuery) -> shapes.TaskPage:
        """Longer pages than an API answers are put together."""
        asked = msgspec.structs.asdict(query)
        data: list[shapes.TaskView] = []
        while True:
            asked["limit"] = min(query.limit - len(data), PAGE)
            page = await self._one("GET", "/v1/tasks", shapes.TaskPage, query=asked)
            data += page.data
            if page.next_cursor is None or len(data) >= query.limit:
                return msgspec.structs.replace(page, data=data)
            asked["cursor"] = page.next_cursor

    async def task(self, id: UUID) -> shapes.TaskView:
        return await self._one("GET", f"/v1/tasks/{id}", shapes.TaskView, of=UnknownTask([id]))

    async def arguments(self, id: UUID) -> bytes:
        path = f"/v1/tasks/{id}/arguments"
        return bytes(await self._one("GET", path, msgspec.Raw, of=UnknownTask([id])))

    async def attempts(self, id: UUID) -> list[shapes.AttemptView]:
        path = f"/v1/tasks/{id}/attempts"
        return await self._many("GET", path, shapes.AttemptView, of=UnknownTask([id]))

    async def result(self, id: UUID, *, wait: float = 0.0) -> shapes.ResultView:
        path = f"/v1/tasks/{id}/result"
        query = {"wait": wait} if wait else None
        return await self._one(
            "GET", path, shapes.ResultView, query=query, of=UnknownTask([id]), patience=wait
        )

    async def why(self, id: UUID) -> list[shapes.WhyView]:
        return await self._many("GET", f"/v1/tasks/{id}/why", shapes.WhyView, of=UnknownTask([id]))

    async def task_events(self, id: UUID, after: int = 0, limit: int = 500) -> shapes.EventPage:
        path, query = f"/v1/tasks/{id}/events", {"after": after, "limit": min(limit, PAGE)}
        return await self._one("GET", path, shapes.EventPage, query=query, of=UnknownTask([id]))

    async def edit(
        self, id: UUID, wish: shapes.TaskEdit, *, revision: str | None = None
    ) -> shapes.TaskView:
        return await self._one(
            "PATCH",
            f"/v1/tasks/{id}",
            shapes.TaskView,
            body=wish,
            of=UnknownTask([id]),
            headers={"If-Match": "*" if revision is None else f'"{revision}"'},
        )

    async def cancel(self, ids: Sequence[UUID]) -> shapes.Changed:
        return await self._move("/v1/tasks:cancel", ids)

    async def retry(self, ids: Sequence[UUID]) -> shapes.Changed:
        return await self._move("/v1/tasks:retry", ids)

    # ── dead letters ─────────────────────────────────────────────────────────────────────────

    async def dead_letter_groups(self, limit: int = 50) -> list[shapes.DeadLetterGroupView]:
        query = {"limit": min(limit, PAGE)}
        return await self._many(
            "GET", "/v1/dead-letters/groups", shapes.DeadLetterGroupView, query=query
        )

    async def replay(self, ids: Sequence[UUID]) -> shapes.Changed:
        return await self._move("/v1/dead-letters:replay", ids)

    async def discard(self, ids: Sequence[UUID]) -> shapes.Changed:
        return await self._move("/v1/dead-letters:discard", ids)

    async def _move(self, path: str, ids: Sequence[UUID]) -> shapes.Changed:
        body = {"ids": list(ids)}
        return await self._one("POST", path, shapes.Changed, body=body, of=UnknownTask(ids))

    # ── durable functions ────────────────────────────────────────────────────────────────────

    async def flow(self, id: UUID, after: int = -1, limit: int = 500) -> shapes.FlowView:
        path, query = f"/v1/flows/{id}", {"after": after, "limit": limit}
        return await self._one("GET", path, shapes.FlowView, query=query, of=UnknownTask([id]))

    async def graph(self, id: UUID, *, depth: int = DEPTH) -> FlowGraph:
        path, query = f"/v1/flows/{id}/graph", {"depth": depth}
        return await self._one("GET", path, FlowGraph, query=query, of=UnknownTask([id]))

    async def export(self, id: UUID) -> bytes:
        path = f"/v1/flows/{id}/export"
        return bytes(await self._one("GET", path, msgspec.Raw, of=UnknownTask([id])))

    async def signal(
        self, id: UUID, name: str, payload: Any = None, *, key: str | None = None
    ) -> bool:
        path, body = f"/v1/flows/{id}/signals/{_part(name)}", {"payload": payload}
        try:
            await self._one("POST", path, msgspec.Raw, body=body, of=UnknownTask([id]), key=key)
        except NotPossible:
            return False
        return True

    # ── the fleet ────────────────────────────────────────────────────────────────────────────

    async def queues(self) -> list[shapes.QueueView]:
        return await self._many("GET", "/v1/queues", shapes.QueueView)

    async def queue(self, name: str) -> shapes.QueueView:
        return await self._one("GET", f"/v1/queues/{_part(name)}", shapes.QueueView)

    async def queue_why(self, name: str) -> list[shapes.WhyView]:
        return await self._many("GET", f"/v1/queues/{_part(name)}/why", shapes.WhyView)

    async def pause(self, queue: str) -> shapes.QueueView:
        return await self._one("POST", f"/v1/queues/{_part(queue)}:pause", shapes.QueueView)

    async def resume(self, queue: str) -> shapes.QueueView:
        return await self._one("POST", f"/v1/queues/{_part(queue)}:resume", shapes.QueueView)

    async def workers(self) -> list[shapes.WorkerView]:
        return await self._many("GET", "/v1/workers", shapes.WorkerView)

    async def worker(self, name: str) -> shapes.WorkerView:
        path = f"/v1/workers/{_part(name)}"
        return await self._one("GET", path, shapes.WorkerView, of=UnknownWorker(name))

    async def drain(self, name: str) -> shapes.WorkerView:
        path = f"/v1/workers/{_part(name)}:drain"
        return await self._one("POST", path, shapes.WorkerView, of=UnknownWorker(name))

    async def leases(
        self,
        *,
        expired: bool = False,
        worker: str | None = None,
        cursor: str | None = None,
        limit: int = 500,
    ) -> shapes.LeasePage:
        query = {
            "expired": expired,
            "worker_id": worker,
            "cursor": cursor,
            "limit": min(limit, PAGE),
        }
        return await self._one("GET", "/v1/leases", shapes.LeasePage, query=query)

    async def recover(self, *, dry_run: bool = False) -> shapes.RecoveryRun:
        return await self._one(
            "POST", "/v1/recoveries", shapes.RecoveryRun, query={"dry_run": dry_run}
        )

    async def recoveries(
        self, *, before: int | None = None, limit: int = 50
    ) -> list[shapes.RecoveryView]:
        query = {"before": before, "limit": min(limit, PAGE)}
        return await self._many("GET", "/v1/recoveries", shapes.RecoveryView, query=query)

    async def stats(self, queues: Sequence[str] = ()) -> shapes.Stats:
        query = {"queues": ",".join(queues) or None}
        return await self._one("GET", "/distributed/stats", shapes.Stats, query=query)

    async def events(self, after: int = 0, limit: int = 500) -> shapes.EventPage:
        query = {"after": after, "limit": min(limit, PAGE), "format": "json"}
        return await self._one("GET", "/v1/events", shapes.EventPage, query=query)

    async def newest_event(self) -> int:
        return (await self._one("GET", "/v1/events/newest", shapes.EventPlace)).last

    async def task_types(self) -> list[shapes.TaskType]:
        return await self._many("GET", "/v1/task-types", shapes.TaskType)


def _part(name: str) -> str:
    return quote(name, safe="")


def _said(wishes: Sequence[shapes.NewTask]) -> list[dict[str, Any]]:
    """Only what was said: the rest is for the other side to decide."""
    return [
        {
            name: value
            for name, value in msgspec.structs.asdict(wish).items()
            if value is not None and value is not False and value != {} and value != []
        }
        for wish in wishes
    ]


def _worded(error: HoldfastError, message: str) -> HoldfastError:
    """The other side knows better what to say."""
    error.args = (message,)
    return error
