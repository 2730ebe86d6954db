"""Answers as bytes: JSON of the desk's shapes, ETags, pages, lists."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
from starlette.responses import Response

from holdfast.http.problems import Problem
from holdfast.http.routing import Ask

__all__ = ["Listed", "fresh", "json", "matches", "needed_match", "tag_of"]

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


def fresh(ask: Ask, value: Any, revision: str, headers: dict[str, str] | None = None) -> Response:
    """With an ETag; 304 where the caller has it already. `revision`: the part of it that
    `If-Match` looks at, where the rest changes by itself."""
    data = _encoder.encode(value)
    tag = f'"{revision}.{tag_of(data)}"'
    headers = {"ETag": tag, **(headers or {})}
    if _names(ask.header("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type="application/json")


def matches(header: str | None, revision: str) -> bool:
    """Whether an `If-Match` names this revision, whatever else has changed."""
    if header is None or header.strip() == "*":
        return True
    tags = [one.strip().removeprefix("W/").strip('"') for one in header.split(",")]
    return any(tag.partition(".")[0] == revision for tag in tags)


def needed_match(ask: Ask) -> str:
    """The `If-Match` of a change that must name what was seen."""
    header = ask.header("if-match")
    if header is None:
        raise Problem(428, "etag_needed", "say with If-Match which state you saw, or send `*`")
    return header


def _names(header: str | None, tag: str) -> bool:
    if header is None:
        return False
    tags = [one.strip().removeprefix("W/") for one in header.split(",")]
    return "*" in tags or tag in tags
