"""The table of routes. What is not declared here is not served: each route names the scope that it
wants, or says aloud that it is for everybody."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.desk.caller import SCOPES, Caller
from holdfast.desk.desk import Desk

if TYPE_CHECKING:
    from holdfast.http.house import House

__all__ = ["PUBLIC", "Ask", "Handler", "Route", "Routes"]

H = TypeVar("H", bound=Callable[..., Any])
Method = Literal["GET", "POST", "PATCH", "DELETE"]
PUBLIC: Final = "public"
JSON: Final = "application/json"
_PARAMETER = re.compile(r"{(\w+)}")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Ask:
    """One request, checked: who asks, and for what."""

    __slots__ = ("body", "caller", "desk", "house", "path", "query", "request", "scope")

    def __init__(
        self,
        request: Request,
        house: "House",
        caller: Caller,
        scope: str,
        desk: Desk,
        path: Mapping[str, Any],
        query: Any,
        body: Any,
    ) -> None:
        self.request, self.house, self.caller, self.scope = request, house, caller, scope
        self.desk, self.path, self.query, self.body = desk, path, query, body

    def header(self, name: str) -> str | None:
        return self.request.headers.get(name)

    async def is_admitted(self) -> bool:
        """Whether its caller still may: a key can be revoked, or expire, while this goes on."""
        return await self.house.door.still_admits(self.request, self.caller, self.scope)

    def url(self, path: str) -> str:
        """A path of ours, wherever this application is mounted."""
        root: str = self.request.scope.get("root_path", "")
        return root.rstrip("/") + path


Handler = Callable[[Ask], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path.

    `answers`: what each status code carries (of several, one); `query`: its parameters;
    `takes`: what a body may be;
    `headers`: those of the request that it listens to, with what they do; `whole`: it is about all
    tenants, so a key of one of them may not; `once`: it heeds an `Idempotency-Key`.
    """

    method: Method
    path: str
    scope: str
    handler: Handler
    name: str
    about: str
    answers: dict[int, Any]
    query: type[msgspec.Struct] = Nothing
    body: Any = None
    errors: tuple[int, ...] = ()
    headers: dict[str, str] = {}
    media: str = "application/json"
    takes: tuple[str, ...] = (JSON,)
    whole: bool = False
    once: bool = False

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)


class Routes:
    """The routes of one resource: `@routes.get("/v1/queues", scope="fleet:read", ...)`."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def get(self, *paths: str, scope: str, **more: Any) -> Callable[[H], H]:
        return self.add("GET", *paths, scope=scope, **more)

    def post(self, *paths: str, scope: str, once: bool = True, **more: Any) -> Callable[[H], H]:
        """`once`: false where asking twice is harmless by itself."""
        return self.add("POST", *paths, scope=scope, once=once, **more)

    def patch(self, *paths: str, scope: str, **more: Any) -> Callable[[H], H]:
        return self.add("PATCH", *paths, scope=scope, **more)

    def add(self, method: Method, *paths: str, scope: str, **more: Any) -> Callable[[H], H]:
        """Several paths: the same under other names. The function's name is the operation's."""
        if scope != PUBLIC and scope not in SCOPES:
            raise ValueError(f"{scope!r} is no scope; name one of desk.caller.SCOPES, or PUBLIC")

        def register(handler: H) -> H:
            for number, path in enumerate(paths):
                self._routes.append(
                    Route(
                        method=method,
                        path=path,
                        scope=scope,
                        handler=handler,
                        name=handler.__name__ + ("_at_root" if number else ""),
                        about=(handler.__doc__ or "").strip(),
                        **more,
                    )
                )
            return handler

        return register
