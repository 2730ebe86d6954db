"""How an attempt ended that raised: the same rules here, in a thread and in another process."""

from asyncio import CancelledError
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.context import Context
from holdfast.errors import (
    HoldfastError,
    NonRetryable,
    PayloadRefused,
    Snooze,
    StepFailed,
    TaskCancelled,
)
from holdfast.executors.failures import failure_of
from holdfast.function import Function
from holdfast.tasks.durations import duration
from holdfast.tasks.lifecycle import Cancelled, Errored, Outcome, Snoozed
from holdfast.tasks.names import check_delay
from holdfast.tasks.task import Failure, Meaning

__all__ = [
    "FunctionRaised", "NeedsWorker", "Raised", "contained", "meaning_of", "outcome_of", "raised_by",
]  # fmt: skip

_MOST_LEAVES = 1000
_FINAL = (NonRetryable, PayloadRefused)


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """What a function raised, as data: all that the decision needs, without its class."""

    failure: Failure
    retryable: bool = True
    snooze: timedelta | None = None
    cancelled: bool = False  # it says that its task was cancelled; whether that is so, others know


class FunctionRaised(HoldfastError):
    """A function raised what cannot or must not be raised again here: see `raised`."""

    def __init__(self, raised: Raised) -> None:
        self.raised = raised
        super().__init__(f"{raised.failure.type}: {raised.failure.message}")


class NeedsWorker(HoldfastError):
    """A function in a process of its own asked for what only the worker's own has: it is to run
    there, and nothing that it did here counts."""


def outcome_of(
    error: BaseException, function: Function[..., Any, Any], context: Context
) -> Outcome:
    """What the attempt's outcome is when `run` of any executor raised this. Never raises."""
    raised = error.raised if type(error) is FunctionRaised else raised_by(error, function)
    if raised.snooze is not None:
        return Snoozed(raised.snooze)
    if raised.cancelled and context.cancel_requested:
        return Cancelled()
    return Errored(raised.failure, raised.retryable)


def contained(error: BaseException, function: Function[..., Any, Any]) -> Exception:
    """The error, in a shape that ends the attempt only: an exit would stop the whole worker, a
    cancellation looks as if the worker had asked for it, and StopIteration passes no coroutine."""
    if isinstance(error, Exception) and not _is(error, StopIteration):
        return error
    return FunctionRaised(raised_by(error, function))


def raised_by(error: BaseException, function: Function[..., Any, Any] | None) -> Raised:
    """Never raises. A group with one error in it is judged by that one."""
    leaves = [_original(leaf) for leaf in _leaves(error)]
    only = leaves[0] if len(leaves) == 1 else error
    if _is(only, Snooze):
        return _snoozed(only, function)
    told = _told(only)
    if told and told.snooze is not None:
        return Raised(failure=_failure(error), snooze=timedelta(seconds=told.snooze))
    return Raised(
        failure=_failure(error),
        retryable=any(_retryable(each, error, function) for each in leaves),
        cancelled=told.cancelled if told else _is(only, TaskCancelled, CancelledError),
    )


def meaning_of(error: BaseException, function: Function[..., Any, Any]) -> Meaning | None:
    """For when its class is gone. None where there is nothing special. Never raises."""
    raised = raised_by(error, function)
    found = Meaning(
        final=all(_is(_original(leaf), *_FINAL) for leaf in _leaves(error)),
        allows=raised.retryable,
        snooze=None if raised.snooze is None else raised.snooze.total_seconds(),
        cancelled=raised.cancelled,
    )
    return None if found == Meaning() else found


def _snoozed(error: Any, function: Function[..., Any, Any] | None) -> Raised:
    try:
        delay = check_delay("snooze", duration("snooze", error.delay))
        return Raised(failure=failure_of(error), snooze=delay)
    except Exception as fault:
        return Raised(failure=failure_of(fault), retryable=_retryable(fault, fault, function))


def _retryable(
    leaf: BaseException, whole: BaseException, function: Function[..., Any, Any] | None
) -> bool:
    told = _told(leaf)
    if _is(leaf, *_FINAL) or (told and told.final):
        return False
    policy = function.traits.retry_policy if function else None
    if policy is None:
        return True
    try:
        allows = told.allows if told else policy.tries_again(leaf)
        return allows or policy.tries_again(whole)
    except BaseException:  # a class that cannot be asked; tries are counted anyway
        return True


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What a group, and groups within it, consist of; or the error itself."""
    todo, found = [error], 0
    while todo and found < _MOST_LEAVES:
        each = todo.pop()
        if _is(each, BaseExceptionGroup) and isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
        else:
            found += 1
            yield each


def _told(error: BaseException) -> Meaning | None:
    """What a step's error meant when it was raised, where only that is left of it."""
    recorded = type(error) is StepFailed and error.original is None and error.failure is not None
    return (error.meaning or Meaning()) if recorded else None  # type: ignore[attr-defined]


def _failure(error: BaseException) -> Failure:
    found = error.failure if _told(error) else None  # type: ignore[attr-defined]
    return failure_of(_original(error)) if found is None else found


def _original(error: BaseException) -> BaseException:
    """A step's own error: that is what counts, and what people look for."""
    found = error.original if type(error) is StepFailed else None
    return error if found is None else found


def _is(error: BaseException, *kinds: type[BaseException]) -> bool:
    """By its real class: `__class__` may be a property that raises."""
    return issubclass(type(error), kinds)
