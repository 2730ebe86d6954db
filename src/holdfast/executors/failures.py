"""An exception as data: bounded, and made even where the exception itself is hostile."""

import os.path
import traceback
from collections.abc import Callable
from itertools import islice
from typing import Any

from holdfast.context import entered
from holdfast.registry import module_name
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Failure, plain

__all__ = ["failure_of", "failure_told"]

_HERE = os.path.dirname(__file__)
_LONGEST = 64 * 1024  # bytes of the whole detail, as the stores take it
_TRACEBACKS = (12_000, 4_000, 1_000)  # characters of one traceback: the longest that fits
_FRAMES = 40
_CAUSES = 4
_NOTES = 10
_PARTS = 10


def failure_of(error: BaseException) -> Failure:
    """Type, message, traceback, notes, causes and, of a group, its parts. Never raises."""
    return Failure(type=_type(error), message=_message(error), detail=_detail(error))


def failure_told(
    type: str, message: str, traceback: str | None, scrub: Callable[[str], str]
) -> Failure:
    """What somebody else tells of an error: scrubbed, and then cut, as our own are."""
    trace = scrub(traceback) if traceback else None
    detail = _fitting(lambda longest: {"traceback": _cut(trace, longest)}) if trace else None
    return Failure(type=scrub(type), message=scrub(message), detail=detail)


def _detail(error: BaseException) -> bytes | None:
    return _fitting(lambda longest: _told(error, longest))


def _fitting(tell: Callable[[int], dict[str, Any]]) -> bytes | None:
    """Counted in bytes: a character can take six of them."""
    for longest in _TRACEBACKS:
        data: bytes | None = _safely(lambda: encode(tell(longest)), None)  # noqa: B023
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
    module = _safely(lambda: module_name(_exactly(kind.__module__)), "")
    name = _safely(lambda: _exactly(kind.__qualname__), "Exception")
    return name if module in ("builtins", "") else f"{module}.{name}"


def _message(error: BaseException) -> str:
    text: str = _safely(lambda: _exactly(error), "")
    return text or _safely(lambda: _exactly(repr(error)), "(it cannot say)")


def _exactly(value: object) -> str:
    """As text of the very class str, since a subclass could do anything when it is cut; and before
    it is cut, without the secrets of the attempt that it is said in."""
    text = str.__str__(str(value))
    context = entered()
    return context.scrub(text) if context else text


def _traceback(error: BaseException, longest: int) -> str:
    """The frames only: the message stands beside it, and may be hostile."""
    return _cut("".join(_safely(lambda: _frames(error), [])), longest)


def _cut(text: str, longest: int) -> str:
    """Its end says most."""
    if len(text) > longest:
        text = "…" + text[-longest:]
    return plain(text, longest + 1)


def _frames(error: BaseException) -> list[str]:
    """Without ours, where there are others: everyone's begin with the same ones."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
    theirs = [frame for frame in frames if not frame.filename.startswith(_HERE)]
    return traceback.StackSummary.from_list(theirs or frames).format()


def _safely(ask: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return ask()
    except BaseException:  # __str__, __repr__ or __notes__ of a stranger may raise anything
        return otherwise
