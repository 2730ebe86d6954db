"""What a request may weigh, looked at before anything is parsed."""

import asyncio
import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.http.problems import Fault, Problem

__all__ = ["MAX_BODY", "MAX_DEPTH", "MAX_NODES", "check_nesting", "decoded", "read_body"]

T = TypeVar("T")
MAX_BODY = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 100_000
PATIENCE = 30.0  # seconds for a body to arrive
# A text that never ends reaches to the end, or each quote in it would be looked at anew.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_OTHER = re.compile(rb"[^\[\]{}]+")
_WHERE = re.compile(r"^(.*?)(?: - at `(?:key in )?(\$.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


async def read_body(
    request: Request, takes: tuple[str, ...] = ("application/json",), most: int = MAX_BODY
) -> bytes:
    """All of it, counted while it comes: nothing is believed of what a client says it sends."""
    _check_headers(request, takes, most)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large(most)
                parts.append(part)
    except TimeoutError:
        raise Problem(
            408, "too_slow", f"the body did not arrive within {PATIENCE:.0f} s; send it again"
        ) from None
    except ClientDisconnect:
        raise Problem(400, "cut_short", "the body ended before it was whole") from None
    return b"".join(parts)


def _check_headers(request: Request, takes: tuple[str, ...], most: int) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in takes:
        names = " or ".join(takes)
        raise Problem(415, "not_json", f"send JSON, and say so: Content-Type: {names}")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "compressed", "send the body as it is: nothing is decompressed here")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 12 or int(length) > most):
        raise too_large(most)


def too_large(most: int) -> Problem:
    return Problem(
        413,
        "too_large",
        f"a body may have {most:,} bytes; send less at once, or keep large data elsewhere and "
        "send where it is",
        headers={"Connection": "close"},
    )


def check_nesting(data: bytes) -> None:
    """Depth and number of parts, counted without building anything."""
    bare = _STRING.sub(b"", data)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MAX_NODES:
        raise Problem(413, "too_many_parts", f"a body may have {MAX_NODES:,} values; send fewer")
    depth = 0
    for bracket in _OTHER.sub(b"", bare):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise Problem(
                413, "too_deep", f"a body may be nested {MAX_DEPTH} deep; make it flatter"
            )


def decoded(data: bytes, kind: type[T]) -> T:
    check_nesting(data)
    try:
        found: T = _decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        raise _unfit(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, "not_json", f"the body is not JSON: {str(error)[:200]}") from None
    except ValueError as error:
        raise Problem(422, "invalid_input", str(error)[:500]) from None
    return found


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


def _unfit(error: msgspec.ValidationError) -> Problem:
    fault = fault_of(error)
    where = f" at {fault.pointer}" if fault.pointer else ""
    return Problem(422, "invalid_body", f"{fault.detail}{where}", errors=[fault])


def fault_of(error: msgspec.ValidationError) -> Fault:
    """`Expected int - at $.a[0]` with its place as a JSON pointer."""
    found = _WHERE.match(str(error))
    detail, path = (found[1], found[2]) if found else (str(error), None)
    steps = [name or index for name, index in _STEP.findall(path or "")]
    pointer = "".join("/" + one.replace("~", "~0").replace("/", "~1") for one in steps)
    return Fault(detail=detail[:500], pointer=pointer)
