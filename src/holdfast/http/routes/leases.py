"""Leases: who holds what until when."""

import msgspec
from starlette.responses import Response

from holdfast.desk.shapes import LeasePage
from holdfast.http.fields import Cursor, Label, Limit
from holdfast.http.paging import paged, place_of
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("leases")


class LeaseFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    expired: bool = False
    worker_id: Label | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


@routes.get(
    "/v1/leases",
    scope="fleet:read",
    query=LeaseFilter,
    answers={200: LeasePage},
)
async def list_leases(ask: Ask) -> Response:
    """What is held, a page at a time, what ends first at the top; `expired`: only what nobody
    renewed. What is renewed between two pages comes on both."""
    wanted: LeaseFilter = ask.query
    page = await ask.desk.leases(
        expired=wanted.expired,
        worker=wanted.worker_id,
        cursor=place_of(ask, wanted),
        limit=wanted.limit,
    )
    return paged(ask, wanted, page)
