"""An exception as data: bounded, and made even where the exception itself is hostile."""

import traceback
from collections.abc import Callable
from itertools import islice
from typing import Any

from holdfast.errors import NonRetryable, PayloadRefused, Snooze
from holdfast.registry import Function
from holdfast.tasks.durations import duration
from holdfast.tasks.lifecycle import Errored, Outcome, Snoozed
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Failure, plain

__all__ = ["failure_of", "outcome_of"]

_LONGEST = 64 * 1024  # bytes of the whole detail, as the stores take it
_TRACEBACKS = (12_000, 4_000, 1_000)  # characters of one traceback: the longest that fits
_FRAMES = 40
_CAUSES = 4
_NOTES = 10
_PARTS = 10


def outcome_of(error: BaseException, function: Function[..., Any, Any]) -> Outcome:
    """What an attempt came to that raised this."""
    policy = function.traits.retry_policy
    match error:
        case Snooze():
            return Snoozed(duration("snooze", error.delay))
        case NonRetryable() | PayloadRefused():
            return Errored(failure_of(error), retryable=False)
        case _:
            return Errored(failure_of(error), policy is None or policy.tries_again(error))


def failure_of(error: BaseException) -> Failure:
    """Type, message, traceback, notes, causes and, of a group, its parts. Never raises."""
    return Failure(type=_type(error), message=_message(error), detail=_detail(error))


def _detail(error: BaseException) -> bytes | None:
    """Counted in bytes: a character can take six of them."""
    for longest in _TRACEBACKS:
        data: bytes | None = _safely(lambda: encode(_told(error, longest)), None)  # noqa: B023
        if data is not None and len(data) <= _LONGEST:
            return data
    return None


def _told(error: BaseException, longest: int) -> dict[str, Any]:
    detail: dict[str, Any] = {"traceback": _traceback(error, longest)}
    if notes := _safely(lambda: _notes(error), []):
        detail["notes"] = notes
    if causes := _safely(lambda: _causes(error, longest), []):
        detail["causes"] = causes
    if parts := _safely(lambda: _parts(error), []):
        detail["parts"] = parts
    return detail


def _causes(error: BaseException, longest: int) -> list[dict[str, str]]:
    """What it came from, nearest first; a circle of causes ends where it closes."""
    found: list[dict[str, str]] = []
    seen = {id(error)}
    cause = _cause(error)
    while cause is not None and id(cause) not in seen and len(found) < _CAUSES:
        seen.add(id(cause))
        found.append(
            {
                "type": plain(_type(cause), 200),
                "message": plain(_message(cause), 500),
                "traceback": _traceback(cause, longest),
            }
        )
        cause = _cause(cause)
    return found


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", ())
    return [plain(_exactly(note), 300) for note in islice(notes, _NOTES)]


def _parts(error: BaseException) -> list[dict[str, str]]:
    """The first errors of a group."""
    if not isinstance(error, BaseExceptionGroup):
        return []
    return [
        {"type": plain(_type(part), 200), "message": plain(_message(part), 300)}
        for part in error.exceptions[:_PARTS]
    ]


def _type(error: BaseException) -> str:
    kind = type(error)
    module = _safely(lambda: _exactly(kind.__module__), "")
    name = _safely(lambda: _exactly(kind.__qualname__), "Exception")
    return name if module in ("builtins", "") else f"{module}.{name}"


def _message(error: BaseException) -> str:
    text: str = _safely(lambda: _exactly(error), "")
    return text or _safely(lambda: _exactly(repr(error)), "(it cannot say)")


def _exactly(value: object) -> str:
    """As text of the very class str: a subclass could do anything when it is cut."""
    return str.__str__(str(value))


def _traceback(error: BaseException, longest: int) -> str:
    """The frames only: the message stands beside it, and may be hostile."""
    frames = _safely(lambda: traceback.format_tb(error.__traceback__, limit=-_FRAMES), [])
    text = "".join(frames)
    if len(text) > longest:
        text = "…" + text[-longest:]
    return plain(text, longest + 1)


def _safely(ask: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return ask()
    except BaseException:  # __str__, __repr__ or __notes__ of a stranger may raise anything
        return otherwise
