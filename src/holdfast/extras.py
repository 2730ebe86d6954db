"""What a log record carries beyond its own fields (`extra=`), fit to be written by anyone."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.redaction import HIDDEN, Redaction

__all__ = ["extras_of"]

Scrub = Callable[[str], str]
_OWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__)
_LATER = {"message", "asctime", "taskName"}  # which formatters, or newer Pythons, put there
_KNOWN = Redaction()


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

    def fields(self, found: Mapping[Any, Any], above: tuple[int, ...]) -> dict[str, Any]:
        hides = self._redaction.is_secret
        return {
            self._scrub(str(name)): HIDDEN if hides(name) else self.tell(value, above)
            for name, value in found.items()
        }

    def tell(self, value: Any, above: tuple[int, ...]) -> Any:
        """`above`: the containers that it lies in, by their id: one may lie in itself."""
        try:
            match value:
                case None | bool():
                    return value
                case str():
                    return self._scrub(str(value))
                case int() | float():
                    text = self._scrub(str(value))
                    return value if text == str(value) and math.isfinite(value) else text
                case Mapping() | list() | tuple() | set() | frozenset() if id(value) in above:
                    return "..."
                case Mapping():
                    return self.fields(value, (*above, id(value)))
                case list() | tuple() | set() | frozenset():
                    return [self.tell(each, (*above, id(value))) for each in value]
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_opened)
            return self.tell(plain, ())
        except Exception:  # what is logged must never hold up what it is about
            return f"<{type(value).__name__}>"


def _opened(value: Any) -> Any:
    """Models of pydantic by their fields, which may have secret names; others as they are told."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    return str(value)
