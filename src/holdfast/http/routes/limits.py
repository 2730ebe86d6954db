"""Limits of functions, queues and tenants: see, set, lift."""

from starlette.responses import Response

from holdfast.desk.papers import LimitPlace, LimitView, LimitWish
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("limits")


@routes.get("/v1/limits", scope="fleet:read", whole=True, answers={200: Listed[LimitView]})
async def list_limits(ask: Ask) -> Response:
    """All limits in force, and who set them."""
    return json(Listed(data=await ask.desk.limits()))


@routes.post(
    "/v1/limits", scope="fleet:control", whole=True, body=LimitWish, answers={200: LimitView}
)
async def set_limit(ask: Ask) -> Response:
    """Limit a function, a queue or a tenant, from now on; what runs already is counted. On a
    function it goes before what its code says, until it is lifted."""
    return json(await ask.desk.set_limit(ask.body))


@routes.post(
    "/v1/limits:lift",
    scope="fleet:control",
    whole=True,
    body=LimitPlace,
    answers={200: Listed[LimitView]},
)
async def lift_limit(ask: Ask) -> Response:
    """Take back a limit that was set here. Answers what is still in force there: what the
    function's code says."""
    left = await ask.desk.lift_limit(ask.body)
    return json(Listed(data=[left] if left else []))
