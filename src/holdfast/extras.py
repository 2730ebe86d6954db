"""What a log record says, and carries beyond its own fields (`extra=`), fit for anyone to write."""

import dataclasses
import logging
import math
from collections import deque
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from enum import Enum
from types import SimpleNamespace
from typing import Any

import msgspec

from holdfast.redaction import HIDDEN, Redaction

__all__ = ["extras_of", "message_of"]

Scrub = Callable[[str], str]
_OWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__)
_LATER = {"message", "asctime", "taskName"}  # which formatters, or newer Pythons, put there
_KNOWN = Redaction()
_MOST = 10_000  # values of one record: what is logged must not hold up what it is about


def message_of(record: logging.LogRecord) -> str:
    """Also where its arguments do not fit: `Handler.handleError` would write these to stderr as
    they are, secrets and all."""
    try:
        return record.getMessage()
    except Exception as error:
        why: object = error
    try:
        return f"{record.msg} (its arguments do not fit: {why})"
    except Exception:
        return f"<{type(record.msg).__name__}> (it cannot be told)"


def extras_of(
    record: logging.LogRecord, scrub: Scrub, redaction: Redaction = _KNOWN
) -> dict[str, Any]:
    """As JSON can hold them: fields of secret names are hidden, texts are scrubbed, and what has no
    form as JSON is told as text. Never raises. Private names are somebody's own business."""
    found = {
        name: value
        for name, value in record.__dict__.items()
        if name not in _OWN and name not in _LATER and not str(name).startswith("_")
    }
    return _Teller(scrub, redaction).fields(found, ()) if found else {}


class _Teller:
    def __init__(self, scrub: Scrub, redaction: Redaction) -> None:
        self._scrub, self._redaction = scrub, redaction
        self._left = _MOST

    def fields(self, found: Mapping[Any, Any], above: tuple[int, ...]) -> dict[str, Any]:
        hides = self._redaction.is_secret
        return {
            self._scrub(str(_meant(name))): HIDDEN if hides(name) else self.tell(value, above)
            for name, value in found.items()
        }

    def tell(self, value: Any, above: tuple[int, ...]) -> Any:
        """`above`: the containers that it lies in, by their id: one may lie in itself."""
        self._left -= 1
        if self._left < 0:
            return "..."
        value = _meant(value)
        try:
            if (named := _named(value)) is not None:
                return "..." if id(value) in above else self.fields(named, (*above, id(value)))
            match value:
                case None | bool():
                    return value
                case str():
                    return self._scrub(str(value))
                case int() | float():
                    text = self._scrub(str(value))
                    return value if text == str(value) and math.isfinite(value) else text
                case bytes() | bytearray() | memoryview():  # as base64 no secret would be found
                    return self._scrub(bytes(value).decode("utf-8", "backslashreplace"))
                case _ if id(value) in above:
                    return "..."
                case Mapping():
                    return self.fields(value, (*above, id(value)))
                case ItemsView():
                    return self.fields(dict(value), (*above, id(value)))
                case list() | tuple() | set() | frozenset() | deque() | KeysView() | ValuesView():
                    return [self.tell(each, (*above, id(value))) for each in value]
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_opened)
            return self.tell(plain, ())
        except Exception:  # what is logged must never hold up what it is about
            return f"<{type(value).__name__}>"


def _meant(value: Any) -> Any:
    """What a member of an enumeration stands for: as a text it would be its name."""
    return value.value if isinstance(value, Enum) else value


def _named(value: Any) -> Mapping[str, Any] | None:
    """What has fields, by their names, which may be secret; not those kept out of its repr."""
    if isinstance(value, tuple) and isinstance(names := getattr(value, "_fields", None), tuple):
        return dict(zip(names, value, strict=False))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return vars(value) if isinstance(value, SimpleNamespace) else None


def _opened(value: Any) -> Any:
    """Models of pydantic by their fields, which may have secret names; others as they are told."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    return str(value)
