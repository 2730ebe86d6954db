"""All routes as one ASGI application, which another one may mount under a prefix."""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.app import Holdfast
from holdfast.http.endpoint import Endpoint
from holdfast.http.house import House
from holdfast.http.openapi import document
from holdfast.http.problems import Problem, internal
from holdfast.http.rendering import json
from holdfast.http.routes import ALL
from holdfast.http.routing import Ask, Route, Routes
from holdfast.version import __version__

__all__ = ["make_api"]

_SLASH = re.compile(rb"%2f", re.IGNORECASE)
_HEADERS = {b"cache-control": b"no-store", b"x-content-type-options": b"nosniff"}


def make_api(app: Holdfast, **options: Any) -> FastAPI:
    """`options`: as `House` takes them. Closed by default: see `auth`."""
    house = House(app, **options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """Only where this is the outermost application; a host that mounts it has its own."""
        async with app:
            yield
            await house.close()

    api = FastAPI(
        title="Holdfast",
        version=__version__,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    api.state.house = house
    tables = [*ALL, _described(api)]
    for path, routes in _by_path(route for table in tables for route in table).items():
        api.router.routes.append(StarletteRoute(path, endpoint=Endpoint(house, routes)))
    api.openapi = lambda: document(tables)  # type: ignore[method-assign]
    api.add_exception_handler(HTTPException, _refused)
    api.add_exception_handler(Exception, _failed)
    api.add_middleware(Careful)
    return api


def _by_path(routes: Iterable[Route]) -> dict[str, list[Route]]:
    """Longer patterns first, so that `{task_id}:cancel` goes before `{task_id}`."""
    found: dict[str, list[Route]] = defaultdict(list)
    for route in routes:
        found[route.path].append(route)
    return dict(sorted(found.items(), key=lambda item: ("{" in item[0], -len(item[0]))))


def _described(api: FastAPI) -> Routes:
    routes = Routes("about")
    made: list[Any] = []

    @routes.get("/openapi.json", scope="tasks:read", answers={200: dict[str, Any]})
    async def show_openapi(ask: Ask) -> Response:
        """This description."""
        if not made:
            made.append(api.openapi())
        return json({**made[0], "servers": [{"url": ask.url("") or "/"}]})

    return routes


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Problem(404, "not_found", "there is no such path here; see /openapi.json").response()


async def _failed(request: Request, error: Exception) -> Response:
    return internal().response()


class Careful:
    """Says with every answer that nobody keeps it, and that it is what it says it is. A slash that
    is written as %2F belongs to a name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [item for item in _HEADERS.items() if item[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw = scope.get("raw_path") or b""
        if b"%2f" in raw.lower():
            kept = _SLASH.sub(b"%252F", raw)
            scope = {**scope, "path": unquote(kept.decode("ascii", "replace"))}
        await self._app(scope, receive, with_headers)
