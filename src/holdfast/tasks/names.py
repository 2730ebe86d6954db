"""Which names, numbers and delays are let in. Refusals say what would be accepted."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.errors import InvalidInput

__all__ = [
    "PRIORITY_RANGE",
    "check_delay",
    "check_key",
    "check_labels",
    "check_name",
    "check_priority",
    "check_run_at",
    "check_tries",
    "check_type",
]

PRIORITY_RANGE = (-32_000, 32_000)
_LONGEST_DELAY = timedelta(days=36_525)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}")
_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@<>+-]{0,199}")


def check_name(what: str, name: str) -> str:
    """A queue, tag, requirement or tenant."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} {name!r} is not a name: use 1 to 128 letters, digits or _ . : / @ -, "
            "beginning with a letter, a digit or _"
        )
    return name


def check_type(name: str) -> str:
    """The registered name of a function, such as `shop.orders:charge`."""
    if not isinstance(name, str) or not _TYPE.fullmatch(name):
        raise InvalidInput(
            f"type {name!r} is not a name: use 1 to 200 letters, digits or _ . : / @ < > + -, "
            "as in 'shop.orders:charge'"
        )
    return name


def check_labels(what: str, labels: Iterable[str]) -> tuple[str, ...]:
    """Tags or requirements: sorted, each once, so that equal sets are equal."""
    if isinstance(labels, str):
        raise InvalidInput(f"{what}s must be a list of names, not the string {labels!r}")
    found = tuple(sorted({check_name(what, label) for label in labels}))
    if len(found) > 16:
        raise InvalidInput(f"at most 16 {what}s are allowed, got {len(found)}")
    return found


def check_key(what: str, key: str) -> str:
    """A key of the user's own making: any text that every database can hold."""
    if not isinstance(key, str) or not 1 <= len(key) <= 255:
        raise InvalidInput(f"{what} must be a text of 1 to 255 characters, got {key!r:.80}")
    if "\0" in key or (not key.isascii() and any("\ud800" <= c <= "\udfff" for c in key)):
        raise InvalidInput(f"{what} {key!r:.80} contains NUL or half a surrogate pair; remove it")
    return key


def check_priority(priority: int) -> int:
    """Higher goes first."""
    low, high = PRIORITY_RANGE
    if isinstance(priority, bool) or not isinstance(priority, int) or not low <= priority <= high:
        raise InvalidInput(
            f"priority must be a whole number from {low} to {high}, got {priority!r:.80}"
        )
    return priority


def check_tries(tries: int) -> int:
    """How often a task is tried at most."""
    if not (type(tries) is int and 1 <= tries <= 32_000):
        raise InvalidInput(f"max_tries must be a whole number from 1 to 32000, got {tries!r:.80}")
    return tries


def check_run_at(run_at: datetime, delay: timedelta | None) -> datetime:
    """When a task is due, where no delay says so."""
    if delay is not None or run_at.tzinfo is None:
        raise InvalidInput(
            "run_at must be a datetime with a time zone, and comes instead of a delay; "
            f"got run_at={run_at!r}, delay={delay!r}"
        )
    if run_at.year > 9000:
        raise InvalidInput(f"run_at must lie before the year 9001, got {run_at}")
    return run_at


def check_delay(what: str, delay: timedelta) -> timedelta:
    """A duration that lies ahead."""
    if not isinstance(delay, timedelta):
        raise InvalidInput(f"{what} must be a timedelta, got {delay!r:.80}")
    if delay < timedelta(0):
        raise InvalidInput(f"{what} must not be negative, got {delay}; leave it out to run now")
    if delay > _LONGEST_DELAY:
        raise InvalidInput(f"{what} must be at most 100 years, got {delay}")
    return delay
