"""Durable functions: what is recorded of them, and signals to them."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.graph import DEEPEST, DEPTH, FlowGraph
from holdfast.desk.shapes import FlowView
from holdfast.http.fields import Limit
from holdfast.http.problems import Problem
from holdfast.http.rendering import json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("flows")


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """`sent`: it is queued, and consumed once."""

    sent: bool


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`payload`: what `wait_for_signal` answers."""

    payload: Any = None


class Depth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    depth: Annotated[int, Meta(ge=1, le=DEEPEST, description="How many levels.")] = DEPTH


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=-1, le=2**31 - 1, description="Behind this position.")] = -1
    limit: Limit = 500


@routes.get(
    "/v1/flows/{task_id}",
    scope="tasks:payload",
    query=Part,
    answers={200: FlowView},
    errors=(409,),
)
async def show_flow(ask: Ask) -> Response:
    """What is recorded of it, in order, and the children that this asked for. Go on with
    `after=` the `next_after` of the answer, until that is null."""
    part: Part = ask.query
    return json(await ask.desk.flow(ask.path["task_id"], part.after, part.limit))


@routes.get(
    "/v1/flows/{task_id}/graph",
    scope="tasks:read",
    query=Depth,
    answers={200: FlowGraph},
    errors=(409,),
)
async def show_graph(ask: Ask) -> Response:
    """It, what it called, what that called, and so on: tasks, and who asked for whom."""
    return json(await ask.desk.graph(ask.path["task_id"], depth=ask.query.depth))


@routes.get(
    "/v1/flows/{task_id}/export",
    scope="tasks:payload",
    answers={200: dict[str, Any]},
    errors=(409,),
)
async def export_flow(ask: Ask) -> Response:
    """The run as JSON, for `holdfast flows check`."""
    return json(msgspec.Raw(await ask.desk.export(ask.path["task_id"])))


@routes.post(
    "/v1/flows/{task_id}/signals/{name}",
    scope="tasks:control",
    body=SignalBody,
    answers={200: Sent},
    errors=(409,),
)
async def send_signal(ask: Ask) -> Response:
    """Queue a signal. With an `Idempotency-Key` it is sent once, also where an answer was lost.
    409: the function has ended."""
    sent = await ask.desk.signal(
        ask.path["task_id"],
        ask.path["name"],
        ask.body.payload,
        key=ask.header("idempotency-key"),
    )
    if not sent:
        raise Problem(409, "not_possible", "nothing was sent: the function has ended")
    return json(Sent(sent=True))
