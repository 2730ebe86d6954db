"""Why an attempt is stopped from outside, and what it came to by that. Pure."""

from datetime import timedelta
from enum import Enum
from typing import assert_never

from holdfast.executors.failures import failure_of
from holdfast.tasks.lifecycle import (
    Anew,
    Cancelled,
    Errored,
    Expired,
    HandedBack,
    Outcome,
    Waiting,
)
from holdfast.tasks.task import Failure

__all__ = ["TOO_LATE", "Reason", "Why", "outcome_of_stop"]

Reason = Waiting | Anew | BaseException  # with which a durable function stops itself


class Why(Enum):
    LOST = "its lease is lost"
    CANCEL = "somebody asked for it"
    TIMEOUT = "it ran out of time"
    EXPIRED = "its task has expired"
    DRAIN = "its worker drains"
    WAITS = "it waits for something that takes long"
    FAULT = "it cannot go on"


TOO_LATE = frozenset({Why.LOST, Why.TIMEOUT, Why.EXPIRED, Why.WAITS, Why.FAULT})


def outcome_of_stop(
    why: Why | None, reason: Reason | None, timeout: timedelta | None
) -> Outcome | None:
    """None: write nothing."""
    match why:
        case Why.LOST:
            return None
        case Why.CANCEL:
            return Cancelled()
        case Why.TIMEOUT:
            failure = Failure(type="TimeoutError", message=f"it ran longer than {timeout}")
            return Errored(failure)
        case Why.EXPIRED:
            return Expired()
        case Why.WAITS:
            assert isinstance(reason, Waiting | Anew)
            return reason
        case Why.FAULT:
            assert isinstance(reason, BaseException)
            return Errored(failure_of(reason))
        case Why.DRAIN | None:
            return HandedBack()
        case _:
            assert_never(why)
