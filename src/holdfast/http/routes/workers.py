"""Workers: who is there."""

import msgspec
from starlette.responses import Response

from holdfast.desk.shapes import WorkerView
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("workers")


class WorkerFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: str | None = None


@routes.get(
    "/v1/workers",
    scope="fleet:read",
    whole=True,
    query=WorkerFilter,
    answers={200: Listed[WorkerView]},
)
async def list_workers(ask: Ask) -> Response:
    """Every start of a worker that is remembered."""
    found = await ask.desk.workers()
    wanted = ask.query.status
    return json(Listed(data=[one for one in found if wanted in (None, one.status)]))


@routes.get("/v1/workers/{worker_id}", scope="fleet:read", whole=True, answers={200: WorkerView})
async def show_worker(ask: Ask) -> Response:
    """One of them."""
    return json(await ask.desk.worker(ask.path["worker_id"]))


@routes.post(
    "/v1/workers/{worker_id}:drain",
    scope="fleet:control",
    whole=True,
    answers={200: WorkerView},
)
async def drain_worker(ask: Ask) -> Response:
    """Ask it to claim nothing more, finish or hand back what it holds, and leave. It hears so with
    its next heartbeat."""
    return json(await ask.desk.drain(ask.path["worker_id"]))
