"""Which names, numbers and delays are let in. Refusals say what would be accepted."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import InvalidInput

__all__ = [
    "PRIORITY_RANGE",
    "check_delay",
    "check_expires",
    "check_expires_after",
    "check_instant",
    "check_key",
    "check_labels",
    "check_name",
    "check_number",
    "check_priority",
    "check_run_at",
    "check_tries",
    "check_type",
    "check_user_id",
]

PRIORITY_RANGE = (-32_000, 32_000)
_LONGEST_DELAY = timedelta(days=36_525)
# What both databases hold and every page can show, whatever zone it was written in.
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9001, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
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
    if not isinstance(labels, Iterable):
        raise InvalidInput(f"{what}s must be a list of names, got {labels!r:.80}")
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


def check_user_id(user_id: str) -> str:
    """A person of the caller's own application: any text that a page and a line can show."""
    if not isinstance(user_id, str) or not 1 <= len(user_id) <= 200:
        raise InvalidInput(f"user_id must be a text of 1 to 200 characters, got {user_id!r:.80}")
    if _CONTROL.search(user_id):
        raise InvalidInput(
            f"user_id {user_id!r:.80} contains a control character or half a surrogate pair; "
            "remove it"
        )
    return user_id


def check_priority(priority: int) -> int:
    """Higher goes first."""
    low, high = PRIORITY_RANGE
    if isinstance(priority, bool) or not isinstance(priority, int) or not low <= priority <= high:
        raise InvalidInput(
            f"priority must be a whole number from {low} to {high}, got {priority!r:.80}"
        )
    return priority


def check_number(what: str, number: Any, least: int, most: int) -> int:
    """A whole number; a truth value or a text is none."""
    if type(number) is not int or not least <= number <= most:
        raise InvalidInput(
            f"{what} must be a whole number from {least} to {most}, got {number!r:.80}"
        )
    return number


def check_tries(tries: Any) -> int:
    """The first try included."""
    return check_number("max_tries", tries, 1, 32_000)


def check_expires(expires: timedelta | None, delay: timedelta | None) -> None:
    """Both count from the same moment: what expires while it is put off would never start."""
    if expires is not None and delay and expires <= delay:
        raise InvalidInput(
            f"it would expire after {expires}, before its delay of {delay} is over; both count "
            "from now: give a longer expires"
        )


def check_expires_after(expires: timedelta, run_at: datetime, now: datetime) -> None:
    """`now`: by the clock that both are judged by."""
    if run_at > now and now + expires <= run_at:
        raise InvalidInput(
            f"it would expire after {expires}, before its run_at of {run_at.isoformat()}, which is "
            f"in {run_at - now}; expires counts from now: give a longer one"
        )


def check_run_at(run_at: Any, delay: timedelta | None) -> datetime:
    """When a task is due, where no delay says so."""
    if delay is not None:
        raise InvalidInput(f"run_at comes instead of a delay; got {run_at!r:.80} and {delay!r:.80}")
    at = check_instant("run_at", run_at)
    if not _EARLIEST <= at < _LATEST:
        raise InvalidInput(f"run_at must lie between the years 1970 and 9000, got {at}")
    return at


def check_instant(what: str, at: Any) -> datetime:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInput(
            f"{what} must be a datetime with a time zone, got {at!r:.80}; write "
            "datetime(2030, 1, 15, 9, 30, tzinfo=UTC)"
        )
    return at


def check_delay(what: str, delay: timedelta) -> timedelta:
    """A duration that lies ahead."""
    if not isinstance(delay, timedelta):
        raise InvalidInput(f"{what} must be a timedelta, got {delay!r:.80}")
    if delay < timedelta(0):
        raise InvalidInput(f"{what} must not be negative, got {delay}; leave it out to run now")
    if delay > _LONGEST_DELAY:
        raise InvalidInput(f"{what} must be at most 100 years, got {delay}")
    return delay
