"""One value as text: short for people, exact for programs, and never a command to a terminal."""

import json
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from holdfast.clock import here

__all__ = ["Cells", "csv_cell", "plain_json", "safe", "safe_json", "span"]

# Control characters (escape sequences begin with one), and those that turn the writing direction.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe(text: str, keep: str = "") -> str:
    """What a terminal would obey, as text that it shows."""
    return _UNSAFE.sub(lambda m: m[0] if m[0] in keep else _written(m[0]), text)


def _written(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def plain_json(value: Any) -> str:
    """Valid JSON on one line."""
    return safe_json(msgspec.json.encode(value, enc_hook=str).decode())


def safe_json(text: str) -> str:
    """What a terminal would obey in a text that is JSON is escaped: programs read the same value.
    Only strings can hold it, other than the white space between values."""
    return _UNSAFE.sub(lambda m: m[0] if m[0] == "\n" else f"\\u{ord(m[0]):04x}", text)


def csv_cell(value: Any) -> str:
    """A text that a spreadsheet would calculate is marked as text; numbers stay numbers."""
    text = safe(_exact(value), keep="\n")
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _exact(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return iso(value)
        case str() | int() | float() | UUID():
            return str(value)
    return plain_json(value)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float) -> str:
    """`85 ms`, `4.2s`, `41s`, `3m 12s`, `5h 2m`, `12d`."""
    sign, left = ("-", -seconds) if seconds < 0 else ("", seconds)
    if left < 1:
        return f"{sign}{left * 1000:.0f} ms"
    if left < 9.95:
        return f"{sign}{left:.1f}s"
    whole = round(left)
    if whole >= 10 * 86400:
        return f"{sign}{whole // 86400}d"
    for size, unit, smaller, below in _UNITS:
        if whole >= size:
            rest = whole % size // smaller
            return f"{sign}{whole // size}{unit}" + (f" {rest}{below}" if rest else "")
    return f"{sign}{whole}s"


_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


class Cells:
    """How values are written in tables. `relative`: instants as time ago or to come."""

    def __init__(self, *, relative: bool, now: datetime | None = None) -> None:
        self._relative, self._now = relative, now or here()

    def text(self, value: Any) -> str:
        match value:
            case None:
                return ""
            case bool():
                return "yes" if value else "no"
            case datetime():
                return self.when(value)
            case timedelta():
                return span(value.total_seconds())
            case bytes():
                return value.hex()
            case float():
                return f"{value:.6g}"
            case Enum():
                return str(value.value)
            case list() | tuple():
                if all(isinstance(part, str) for part in value):
                    return safe(",".join(value))
                return safe(json.dumps(value, default=_plain, ensure_ascii=False))
            case dict():
                return safe(json.dumps(value, default=_plain, ensure_ascii=False))
        return safe(" ".join(str(value).split()))

    def when(self, at: datetime) -> str:
        if not self._relative:
            return iso(at)
        seconds = (at - self._now).total_seconds()
        if abs(seconds) < 1:
            return "now"
        return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"
