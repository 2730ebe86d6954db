"""Answers as bytes: JSON of the desk's shapes, ETags, pages, lists."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
from starlette.responses import Response

from holdfast.http.routing import Ask

__all__ = ["Listed", "fresh", "json", "tag_of"]

T = TypeVar("T")
_encoder = msgspec.json.Encoder()


class Listed(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """All there is."""

    data: list[T]


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        _encoder.encode(value), status, headers=dict(headers or {}), media_type="application/json"
    )


def tag_of(data: bytes) -> str:
    return sha256(data).hexdigest()[:20]


def fresh(
    ask: Ask, value: Any, settings: Any = None, headers: dict[str, str] | None = None
) -> Response:
    """With an ETag; 304 where the caller has it already. `settings`: the part of it that
    `If-Match` looks at, where the rest changes by itself."""
    data = _encoder.encode(value)
    tag = f'"{tag_of(_encoder.encode(settings))}.{tag_of(data)}"' if settings else _quoted(data)
    headers = {"ETag": tag, **(headers or {})}
    if _names(ask.header("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type="application/json")


def matches(header: str | None, settings: Any) -> bool:
    """Whether an `If-Match` names these settings, whatever else has changed."""
    if header is None or header.strip() == "*":
        return True
    wanted = tag_of(_encoder.encode(settings))
    tags = [one.strip().removeprefix("W/").strip('"') for one in header.split(",")]
    return any(tag.partition(".")[0] == wanted for tag in tags)


def _quoted(data: bytes) -> str:
    return f'"{tag_of(data)}"'


def _names(header: str | None, tag: str) -> bool:
    if header is None:
        return False
    tags = [one.strip().removeprefix("W/") for one in header.split(",")]
    return "*" in tags or tag in tags
