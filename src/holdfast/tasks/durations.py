"""Spans of time as people write them."""

import re
from datetime import timedelta

from holdfast.errors import InvalidInput

__all__ = ["Duration", "duration", "longer_than_nothing"]

Duration = str | float | timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])\s*", re.ASCII)


def duration(what: str, value: Duration) -> timedelta:
    """`"90s"`, `"1h 30m"`, a number of seconds, or a timedelta; never negative."""
    match value:
        case timedelta():
            span = value
        case bool():
            raise _refused(what, value)
        case int() | float() if abs(value) < 1e11:  # which no NaN is
            span = timedelta(seconds=value)
        case str():
            span = _parse(what, value)
        case _:
            raise _refused(what, value)
    if span < timedelta(0):
        raise InvalidInput(f"{what} must not be negative, got {value!r:.80}")
    return span


def longer_than_nothing(what: str, span: timedelta) -> timedelta:
    if span <= timedelta(0):
        raise InvalidInput(f"{what} must be longer than nothing; leave it out for the default")
    return span


def _parse(what: str, text: str) -> timedelta:
    rest, seconds = text.strip(), 0.0
    if not rest:
        raise _refused(what, text)
    while rest:
        found = _PART.match(rest)
        if not found or len(found[1]) > 12:
            raise _refused(what, text)
        seconds += float(found[1]) * _UNITS[found[2]]
        rest = rest[found.end() :]
    if seconds > 1e11:
        raise _refused(what, text)
    return timedelta(seconds=seconds)


def _refused(what: str, value: object) -> InvalidInput:
    return InvalidInput(
        f"{what} {value!r:.80} is not a span of time; write '30s', '5m', '1h 30m' or '2d', "
        "or give seconds or a timedelta"
    )
