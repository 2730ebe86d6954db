"""The description of all routes (OpenAPI 3.1), made of the same table and the same shapes that
serve them: it cannot say anything else."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from holdfast.desk.caller import SCOPES
from holdfast.http.examples import EXAMPLES
from holdfast.http.parameters import PARAMETERS
from holdfast.http.problems import ProblemView
from holdfast.http.routing import PUBLIC, Route, Routes
from holdfast.version import __version__

__all__ = ["document"]

_REF = "#/components/schemas/{name}"
_EVERYWHERE = (400, 422, 500, 503)
_BEHIND_THE_DOOR = (401, 403, 429)
_WITH_A_BODY = (408, 413, 415)
_ONCE = "The same key with the same request is answered as the first one was, for a day."
_ABOUT = """Durable tasks. Errors are problems (RFC 9457): decide by `code`. Lists answer \
`next_cursor`. Times are RFC 3339 in UTC, durations are seconds."""


def document(tables: Iterable[Routes]) -> dict[str, Any]:
    tables = list(tables)
    shapes = Shapes(tables)
    paths: dict[str, dict[str, Any]] = {}
    for table in tables:
        for route in table:
            operation = _operation(table.tag, route, shapes)
            paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": shapes.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "tags": [{"name": table.tag} for table in tables],
    }


class Shapes:
    """Every shape that some route takes or answers, by name."""

    def __init__(self, tables: Iterable[Routes]) -> None:
        self._schemas: dict[Any, Any] = {}
        kinds = list(dict.fromkeys(_kinds(tables)))
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._schemas = dict(zip(kinds, schemas, strict=True))
        for kind, example in EXAMPLES.items():
            if kind.__name__ in self.components:
                self.components[kind.__name__]["examples"] = [example]

    def __getitem__(self, kind: Any) -> Any:
        if isinstance(kind, tuple):
            return {"oneOf": [self._schemas[one] for one in kind]}
        return self._schemas[kind]


def _kinds(tables: Iterable[Routes]) -> Iterator[Any]:
    yield ProblemView
    for table in tables:
        for route in table:
            for kind in route.answers.values():
                yield from kind if isinstance(kind, tuple) else [kind] if kind else []
            if route.body is not None:
                yield route.body


def _operation(tag: str, route: Route, shapes: Shapes) -> dict[str, Any]:
    about = route.about.partition(". ")[0]
    scope = "everybody" if route.scope == PUBLIC else f"`{route.scope}`: {SCOPES[route.scope]}"
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": about.rstrip(".").replace("\n", " "),
        "description": f"{' '.join(route.about.split())}\n\nScope: {scope}.",
        "tags": [tag],
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": _responses(route, shapes),
        "security": [] if route.scope == PUBLIC else [{"key": []}],
        "x-scope": route.scope,
    }
    if route.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {media: _content(route.body, shapes) for media in route.takes},
        }
    return found


def _in_path(route: Route) -> Iterator[dict[str, Any]]:
    for name in route.parameters:
        schema = msgspec.json.schema(PARAMETERS[name])
        about = schema.pop("description", "")
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schema,
            "description": about,
        }


def _in_query(route: Route) -> Iterator[dict[str, Any]]:
    schema = msgspec.json.schema(route.query)
    whole = next(iter(schema["$defs"].values()))
    for name, field in whole["properties"].items():
        plain = _without_null(field)
        about = plain.pop("description", "")
        yield {"name": name, "in": "query", "schema": plain, "description": about}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out, never null."""
    kept = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    found = dict(kept[0]) if kept else dict(schema)
    if found.get("default", 0) is None:
        del found["default"]
    if None in found.get("enum", ()):
        found["enum"] = [one for one in found["enum"] if one is not None]
    return found


def _in_headers(route: Route) -> Iterator[dict[str, Any]]:
    told = {"Idempotency-Key": _ONCE} if route.once else {}
    for name, about in (route.headers | told).items():
        yield {
            "name": name,
            "in": "header",
            "schema": {"type": "string", "maxLength": 500},
            "description": about,
        }


def _responses(route: Route, shapes: Shapes) -> dict[str, Any]:
    found = {
        str(status): _answer(status, kind, route, shapes) for status, kind in route.answers.items()
    }
    for status in _errors(route):
        if str(status) not in found:
            content = {"application/problem+json": {"schema": shapes[ProblemView]}}
            found[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return dict(sorted(found.items()))


def _answer(status: int, kind: Any, route: Route, shapes: Shapes) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if kind is None:
        return answer
    answer["content"] = {route.media: _content(kind, shapes)}
    if route.media == "text/event-stream":
        answer["content"] = {
            "application/json": _content(kind, shapes),
            route.media: {"schema": {"type": "string"}},
        }
    return answer


def _errors(route: Route) -> set[int]:
    found = {*_EVERYWHERE, *route.errors}
    if route.scope != PUBLIC:
        found.update(_BEHIND_THE_DOOR)
    if route.parameters:
        found.add(404)
    if route.body is not None:
        found.update(_WITH_A_BODY)
    if route.once:
        found.add(409)
    return found


def _content(kind: Any, shapes: Shapes) -> dict[str, Any]:
    found = {"schema": shapes[kind]}
    if kind in EXAMPLES:
        found["example"] = EXAMPLES[kind]
    return found
