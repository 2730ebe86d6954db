"""What stands in paths and queries: bounded, typed, and refused in words."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request

from holdfast.http.bounds import fault_of
from holdfast.http.problems import Problem, wrong_parameter
from holdfast.http.routing import Route

__all__ = ["PARAMETERS", "path_of", "query_of"]

PARAMETERS: dict[str, Any] = {
    "task_id": Annotated[UUID, Meta(description="The id of a task.")],
    "operation_id": Annotated[UUID, Meta(description="The id of an operation.")],
    "key_id": Annotated[
        str,
        Meta(min_length=1, max_length=40, pattern="^[A-Za-z0-9]+$", description="The id of a key."),
    ],
    "queue": Annotated[str, Meta(min_length=1, max_length=200, description="A queue.")],
    "worker_id": Annotated[
        str, Meta(min_length=1, max_length=200, description="The name or the id of a worker.")
    ],
    "name": Annotated[str, Meta(min_length=1, max_length=200, description="A name.")],
    "token": Annotated[
        str, Meta(min_length=1, max_length=4000, description="A lease, as a claim answered it.")
    ],
}
_LONGEST = 4096  # bytes of a query


def path_of(request: Request, route: Route) -> dict[str, Any]:
    """An id that is none names nothing: 404, as for one that nobody knows."""
    found = {}
    for name in route.parameters:
        try:
            text = request.path_params[name].replace("%2F", "/")  # see `api.Careful`
            found[name] = msgspec.convert(text, PARAMETERS[name])
        except msgspec.ValidationError:
            raise Problem(404, "not_found", "there is no such thing here") from None
        if isinstance(found[name], str) and "\0" in found[name]:
            raise Problem(404, "not_found", "there is no such thing here")
    return found


def query_of(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    if len(request.url.query) > _LONGEST:
        raise wrong_parameter("query", f"it may have {_LONGEST:,} bytes", status=400)
    values: dict[str, str] = {}
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name, value in request.query_params.multi_items():
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise wrong_parameter(name[:80], f"there is no such parameter; there are: {names}")
        if name in values:
            raise wrong_parameter(name, "give it once")
        if "\0" in value:
            raise wrong_parameter(name, "it holds a NUL; leave it out")
        values[name] = value
    return _converted(values, kind)


def _converted(values: Mapping[str, str], kind: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        fault = fault_of(error)
        name = (fault.pointer or "/query").lstrip("/").partition("/")[0]
        raise wrong_parameter(name, fault.detail) from None
