"""An exception as data: bounded, and made even where the exception itself is hostile."""

import traceback
from collections.abc import Callable
from typing import Any

from holdfast.errors import NonRetryable, PayloadRefused, Snooze
from holdfast.registry import Function
from holdfast.tasks.durations import duration
from holdfast.tasks.lifecycle import Errored, Outcome, Snoozed
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Failure, plain

__all__ = ["failure_of", "outcome_of"]

_LONGEST = 12_000  # characters of one traceback; the whole detail must stay within 64 KiB
_FRAMES = 40
_CAUSES = 4
_NOTES = 10


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
    """Type, message, traceback, notes and causes. Never raises."""
    detail: dict[str, Any] = {"traceback": _traceback(error)}
    if notes := _safely(lambda: _notes(error), []):
        detail["notes"] = notes
    if causes := _safely(lambda: _causes(error), []):
        detail["causes"] = causes
    return Failure(type=_type(error), message=_message(error), detail=encode(detail))


def _causes(error: BaseException) -> list[dict[str, str]]:
    """What it came from, nearest first; a circle of causes ends where it closes."""
    found: list[dict[str, str]] = []
    seen = {id(error)}
    cause = _cause(error)
    while cause is not None and id(cause) not in seen and len(found) < _CAUSES:
        seen.add(id(cause))
        found.append(
            {
                "type": _type(cause),
                "message": plain(_message(cause), 1000),
                "traceback": _traceback(cause),
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
    return [plain(str(note), 500) for note in list(notes)[:_NOTES]]


def _type(error: BaseException) -> str:
    kind = type(error)
    module = _safely(lambda: str(kind.__module__), "")
    name = _safely(lambda: str(kind.__qualname__), "Exception")
    return name if module in ("builtins", "") else f"{module}.{name}"


def _message(error: BaseException) -> str:
    text: str = _safely(lambda: str(error), "") or _safely(lambda: repr(error), "(it cannot say)")
    return text


def _traceback(error: BaseException) -> str:
    """The frames only: the message stands beside it, and may be hostile."""
    frames = _safely(lambda: traceback.format_tb(error.__traceback__, limit=-_FRAMES), [])
    text = "".join(frames)
    if len(text) > _LONGEST:
        text = "…" + text[-_LONGEST:]
    return plain(text, _LONGEST + 1)


def _safely(ask: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return ask()
    except BaseException:  # __str__, __repr__ or __notes__ of a stranger may raise anything
        return otherwise
