"""One path: finds the route of the method, checks all that can be checked, asks, and answers."""

import logging
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.http.auth import unauthorized
from holdfast.http.bounds import decoded, read_body
from holdfast.http.house import House
from holdfast.http.once import once
from holdfast.http.parameters import path_of, query_of
from holdfast.http.problems import Problem, internal, problem_of
from holdfast.http.routing import PUBLIC, Ask, Route

__all__ = ["Endpoint"]

_LONG = 500_000  # microseconds
NO_DESK: Any = None  # nobody in particular asks nothing of it
logger = logging.getLogger("holdfast.http")


class Endpoint:
    """An ASGI application for all methods of one path."""

    def __init__(self, house: House, routes: Iterable[Route]) -> None:
        self._house = house
        self.routes: dict[str, Route] = {route.method: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._ask(request)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                logger.exception("%s %s failed", request.method, self._path)
                problem = internal()
            elif problem.status == 503:
                logger.warning("%s %s: %s", request.method, self._path, error)
            return problem.response()

    async def _ask(self, request: Request) -> Response:
        route = self._route(request.method)
        caller = await self._house.door.admit(request, route.scope)
        if route.whole and caller.tenant is not None:
            raise Problem(403, "forbidden", "this is about all tenants, and your key is of one")
        path, query = path_of(request, route), query_of(request, route.query)
        data = await read_body(request, route.takes) if route.body is not None else b""
        body = decoded(data, route.body) if route.body is not None else None
        desk = await self._house.desk_for(caller) if route.scope != PUBLIC else NO_DESK
        ask = Ask(request, self._house, caller, route.scope, desk, path, query, body)
        if not route.once:
            return await self._looked(route, ask)
        client = await self._house.client(caller.tenant)
        return await once(client, request, caller, data, lambda: route.handler(ask))

    async def _looked(self, route: Route, ask: Ask) -> Response:
        """Who waited for long is let in anew before anything is shown."""
        clock = self._house.app.home.clock
        began = clock.boot()
        response = await route.handler(ask)
        waited = route.method == "GET" and clock.boot() - began > _LONG
        if waited and route.scope != PUBLIC and not await ask.is_admitted():
            raise unauthorized()
        return response

    def _route(self, method: str) -> Route:
        looked_at = self.routes.get("GET")
        has_head = looked_at is not None and looked_at.media != "text/event-stream"
        found = looked_at if method == "HEAD" and has_head else self.routes.get(method)
        if found is None:
            allowed = sorted({*self.routes, *(["HEAD"] if has_head else [])})
            raise Problem(
                405,
                "method_not_allowed",
                f"this path knows {', '.join(allowed)}",
                headers={"Allow": ", ".join(allowed)},
            )
        return found

    @property
    def _path(self) -> str:
        return next(iter(self.routes.values())).path
