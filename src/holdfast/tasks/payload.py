"""Arguments and results as bounded JSON. Stored as bytes, never re-imported, never pickled."""

import math
import re
from collections.abc import Coroutine
from typing import Any

import msgspec

from holdfast.errors import PayloadRefused

__all__ = ["MAX_DEPTH", "MAX_SIZE", "check_payload", "convert", "decode", "encode"]

MAX_SIZE = 1024 * 1024
MAX_DEPTH = 100


def _dump(value: Any) -> Any:
    """Models of pydantic, known by what they can do: the library itself is never imported."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if isinstance(value, Coroutine):
        name = getattr(value, "__qualname__", "it")
        raise TypeError(f"await {name}, or Holdfast.run({name}(...)) where the function is sync")
    raise TypeError(f"objects of type {type(value).__name__} have no form as JSON")


def _load(kind: Any, value: Any) -> Any:
    if callable(load := getattr(kind, "model_validate", None)):
        return load(value)
    raise TypeError(f"{kind} cannot be read from JSON")


_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=_dump)  # equal values, equal bytes
_unsorted = msgspec.json.Encoder(enc_hook=_dump)  # for sets of things that have no order
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
# A text that never ends reaches to the end, or each quote in it would be looked at anew.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def encode(value: Any) -> bytes:
    """Any value of plain types, dates, decimals, UUIDs, bytes, dataclasses and structs as JSON."""
    if value is None:
        return b"null"
    try:
        try:
            data = _sorted.encode(value)
        except TypeError:
            data = _with_odd_keys(value)
    except RecursionError:
        raise _too_deep() from None
    except (
        *(TypeError, ValueError, OverflowError, NotImplementedError),
        msgspec.MsgspecError,
    ) as error:
        raise PayloadRefused(
            f"a value of type {type(value).__name__} cannot be stored as JSON: {error}. Use plain "
            "types, dates, decimals, UUIDs, bytes, dataclasses or structs"
        ) from None
    check_payload(data)
    # msgspec writes NaN and the infinities as null: look only where a null is.
    if b"null" in data and _has_nan(value):
        raise PayloadRefused("NaN and infinity cannot be stored as JSON; send None or a text")
    return data


def _with_odd_keys(value: Any) -> bytes:
    """Dicts whose keys are no texts: as such they have an order, too."""
    try:
        plain = msgspec.to_builtins(value, order="deterministic", str_keys=True, enc_hook=_dump)
    except TypeError:
        return _unsorted.encode(value)
    data = _sorted.encode(plain)
    if len(data) != len(_unsorted.encode(value)):  # in any order it has the same length
        raise ValueError("two keys of a dict are one as JSON, such as 1 and '1'")
    return data


def decode(data: bytes, type: Any = Any) -> Any:
    """The value as `type` describes it: what was a date comes back as a date."""
    check_payload(data)
    try:
        decoder = _decoders.get(type)
        if decoder is None:
            decoder = _decoders[type] = msgspec.json.Decoder(type, dec_hook=_load)
        return decoder.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise PayloadRefused(f"the stored JSON does not fit {type}: {error}") from None


def convert(value: Any, type: Any) -> Any:
    """What was decoded without a type, as `type` describes it."""
    try:
        return msgspec.convert(value, type, dec_hook=_load, str_keys=True)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        kind = value.__class__.__name__  # not the value itself, which may be a secret
        raise PayloadRefused(f"a value of type {kind} does not fit {type}: {error}") from None


def check_payload(data: bytes) -> bytes:
    """Bounded size and depth; the check costs next to nothing for ordinary payloads."""
    if not isinstance(data, bytes):
        raise PayloadRefused(
            f"a payload must be bytes, JSON as `encode(value)` makes it, not {type(data).__name__}"
        )
    if len(data) <= MAX_DEPTH:
        return data
    if len(data) > MAX_SIZE:
        raise PayloadRefused(
            f"a payload of {len(data):,} bytes is over the limit of {MAX_SIZE:,}; "
            "store the data elsewhere and send its address"
        )
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise _too_deep()
    return data


def _depth(data: bytes) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _has_nan(value: Any) -> bool:
    todo = [msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=False, enc_hook=_dump)]
    while todo:
        match todo.pop():
            case float() as number if not math.isfinite(number):
                return True
            case dict() as items:
                todo += items.keys()
                todo += items.values()
            case list() | tuple() | set() | frozenset() as items:
                todo += items
    return False


def _too_deep() -> PayloadRefused:
    return PayloadRefused(
        f"a payload may nest at most {MAX_DEPTH} levels deep; flatten it or store it elsewhere"
    )
