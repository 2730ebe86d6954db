"""Leases: who holds what until when."""

import msgspec
from starlette.responses import Response

from holdfast.desk.shapes import LeaseShape
from holdfast.http.fields import Label, Limit
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("leases")


class LeaseFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    expired: bool = False
    worker_id: Label | None = None
    limit: Limit = 100


@routes.get(
    "/v1/leases",
    scope="fleet:read",
    query=LeaseFilter,
    answers={200: Listed[LeaseShape]},
)
async def list_leases(ask: Ask) -> Response:
    """What is held; `expired`: only what nobody renewed."""
    wanted: LeaseFilter = ask.query
    found = await ask.desk.leases(
        expired=wanted.expired, worker=wanted.worker_id, limit=wanted.limit
    )
    return json(Listed(data=found))
