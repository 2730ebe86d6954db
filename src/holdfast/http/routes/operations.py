"""The same done to many tasks: looked at first, paced, and stopped when somebody says so."""

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.papers import OperationView, OperationWish
from holdfast.http.fields import Limit
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes
from holdfast.http.waiting import PREFER, Waiting, patience

__all__ = ["routes"]

routes = Routes("operations")


class Recent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    before: Annotated[UUID, Meta(description="Only older ones than this.")] | None = None
    limit: Limit = 50


@routes.post(
    "/v1/operations",
    scope="tasks:control",
    body=OperationWish,
    answers={202: OperationView, 200: OperationView},
)
async def start_operation(ask: Ask) -> Response:
    """Begin, and answer at once: 202. With `dry_run` only what it would do: 200."""
    made = await ask.desk.start_operation(ask.body)
    if made.id is None:
        return json(made)
    ask.house.sweeping.drive()
    return json(made, 202, {"Location": ask.url(f"/v1/operations/{made.id}")})


@routes.get(
    "/v1/operations", scope="tasks:read", query=Recent, answers={200: Listed[OperationView]}
)
async def list_operations(ask: Ask) -> Response:
    """The newest first."""
    wanted: Recent = ask.query
    found = await ask.desk.operations(before=wanted.before, limit=wanted.limit)
    return json(Listed(data=found))


@routes.get(
    "/v1/operations/{operation_id}",
    scope="tasks:read",
    query=Waiting,
    answers={200: OperationView},
    headers=PREFER,
)
async def show_operation(ask: Ask) -> Response:
    """How far it is; with `wait`, once it has ended or the time is over."""
    seconds, headers = patience(ask)
    found = await ask.desk.operation(ask.path["operation_id"], wait=seconds)
    return json(found, headers=headers)


@routes.post(
    "/v1/operations/{operation_id}:cancel", scope="tasks:control", answers={200: OperationView}
)
async def cancel_operation(ask: Ask) -> Response:
    """Do no more of it; what was done stays done."""
    return json(await ask.desk.cancel_operation(ask.path["operation_id"]))
