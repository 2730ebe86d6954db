"""What may happen to a task: the whole state machine. Pure: no await, no SQL, no clock.

    pending ──claim──▶ running ──▶ done
       ▲                  │  ├───▶ failed        (the dead letters)
       │                  │  ├───▶ cancelled
       ├─ retry, snooze ──┤  │
       ├─ lost, hand-back ┘  │
       └──── wake ── waiting ◀┘

An `Outcome` says how an attempt ended, a `Settlement` what follows from it. Delays, never
instants: the store's clock turns them into times. The store checks once more what it alone can
know at that moment (tries left, cancel asked for, expired) and ends the task by the same rules.
"""

from datetime import timedelta
from enum import StrEnum
from typing import assert_never
from uuid import UUID

import msgspec

from holdfast.errors import InvalidInput
from holdfast.tasks.names import check_delay
from holdfast.tasks.payload import check_payload
from holdfast.tasks.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.tasks.task import Failure, plain

__all__ = [
    "NEVER",
    "Anew",
    "Cancelled",
    "Done",
    "Errored",
    "Expired",
    "Facts",
    "HandedBack",
    "Lost",
    "Outcome",
    "Settlement",
    "Snoozed",
    "Verdict",
    "Waiting",
    "done",
    "settle",
]

_LONGEST_DETAIL = 64 * 1024
NEVER = 1_000_000_000  # wakes: whoever waits for so many is woken by people, or a cancel, alone
EXPIRED = Failure(type="Expired", message="not done before it expired")
LATE = Failure(type="Expired", message="not tried again before it expired")  # said by stores
LOST = Failure(type="WorkerLost", message="its worker stopped renewing the lease")


class Verdict(StrEnum):
    """How an attempt ended, in the words of the history."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRY = "retry"
    SNOOZED = "snoozed"
    HANDED_BACK = "handed_back"
    WAITING = "waiting"
    LOST = "lost"

    @property
    def final(self) -> bool:
        return self in (Verdict.DONE, Verdict.FAILED, Verdict.CANCELLED)


class Done(msgspec.Struct, frozen=True):
    """The function returned."""

    result: bytes


class Errored(msgspec.Struct, frozen=True):
    """The function raised; `retryable` is false for errors that another try cannot mend."""

    failure: Failure
    retryable: bool = True


class Cancelled(msgspec.Struct, frozen=True):
    """The function was asked to stop, and did, or it was never started."""


class Expired(msgspec.Struct, frozen=True):
    """Its time was over: before it was started, or while it ran."""


class Snoozed(msgspec.Struct, frozen=True):
    """The function asked to be called again later; the attempt is given back."""

    delay: timedelta


class Anew(msgspec.Struct, frozen=True):
    """A durable function goes on as a new run of the same task: these arguments, an empty journal;
    the attempt is given back."""

    payload: bytes


class HandedBack(msgspec.Struct, frozen=True):
    """A draining worker gives it back unfinished, with its place and its attempt."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A durable function put down until `wakes` things that it waits for have come, or the timer.

    `watched` are tasks that are not its children, and count like these once they have ended.
    `seen` are the wakes that this attempt has read: only those are forgotten.
    """

    timer: timedelta | None = None
    wakes: int = 1
    watched: tuple[UUID, ...] = ()
    seen: tuple[int, ...] = ()
    reason: str = "waiting"


class Lost(msgspec.Struct, frozen=True):
    """Nobody renewed the lease. In company: other tasks of the same worker were lost too, so this
    one is not blamed yet; it gets its attempt back, once. Lost again, it pays, and runs alone.
    `recorded`: it had got on; where nobody else was lost with it, it pays nothing."""

    in_company: bool
    recorded: bool = False


Outcome = Done | Errored | Cancelled | Expired | Snoozed | Anew | HandedBack | Waiting | Lost


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision needs to know of a task under a lease."""

    tries: int  # this one included: a try is charged when it is granted
    max_tries: int
    retry: RetryPolicy | None = None
    alone: bool = False
    cancel_requested: bool = False
    expired: bool = False


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What follows from an outcome. Checked when it is born: later it shares a batch with others,
    and would fail them all."""

    verdict: Verdict
    result: bytes | None = None
    failure: Failure | None = None
    delay: timedelta | None = None  # retry, snoozed, waiting; None while waiting: no timer
    refund: bool = False
    alone: bool = False
    wakes: int = 1
    watched: tuple[UUID, ...] = ()
    seen: tuple[int, ...] = ()
    reason: str | None = None
    payload: bytes | None = None  # snoozed: of the new run that begins, with an empty journal

    def __post_init__(self) -> None:
        if self.result is not None:
            check_payload(self.result)
        if self.verdict is not Verdict.DONE or self.payload is not None:
            self._check_rest()

    def _check_rest(self) -> None:
        if self.payload is not None:
            check_payload(self.payload)
            if self.verdict is not Verdict.SNOOZED or self.delay or not self.refund:
                raise InvalidInput("a settlement has a payload only where a new run begins at once")
        if self.delay is not None:
            check_delay("delay", self.delay)
        if self.failure is not None and len(self.failure.detail or b"") > _LONGEST_DETAIL:
            raise InvalidInput(
                f"the detail of a failure may have {_LONGEST_DETAIL:,} bytes; shorten its traceback"
            )
        if type(self.wakes) is not int or not 1 <= self.wakes <= NEVER:
            raise InvalidInput(f"wakes must be from 1 to {NEVER:,}, got {self.wakes!r:.80}")
        if any(type(seq) is not int or not 0 <= seq < 2**63 for seq in self.seen):
            raise InvalidInput(f"seen must be numbers of wakes, got {self.seen!r:.80}")
        if self.reason is not None:
            msgspec.structs.force_setattr(self, "reason", plain(self.reason, 1000))


def done(result: bytes) -> Settlement:
    """What follows when a function returned: whatever else was going on, it is done."""
    return _NOTHING if result == b"null" else Settlement(verdict=Verdict.DONE, result=result)


_NOTHING = Settlement(verdict=Verdict.DONE, result=b"null")


def settle(facts: Facts, outcome: Outcome, roll: float = 0.5) -> Settlement:
    """What follows when an attempt ends so. `roll` is chance, from 0 to 1, for the jitter."""
    wish = _wish(facts, outcome, roll)
    if wish.verdict.final:
        return wish
    if facts.cancel_requested:
        return Settlement(verdict=Verdict.CANCELLED, failure=wish.failure)
    if facts.expired:
        return Settlement(verdict=Verdict.FAILED, failure=EXPIRED)
    if not wish.refund and facts.tries >= facts.max_tries:
        return Settlement(verdict=Verdict.FAILED, failure=wish.failure)
    return wish


def _wish(facts: Facts, outcome: Outcome, roll: float) -> Settlement:
    match outcome:
        case Done(result):
            return done(result)
        case Errored(failure, retryable):
            if not retryable:
                return Settlement(verdict=Verdict.FAILED, failure=failure)
            delay = (facts.retry or DEFAULT_RETRY).delay(facts.tries, roll)
            return Settlement(verdict=Verdict.RETRY, failure=failure, delay=delay)
        case Cancelled():
            return Settlement(verdict=Verdict.CANCELLED)
        case Expired():
            return Settlement(verdict=Verdict.FAILED, failure=EXPIRED)
        case Snoozed(delay):
            return Settlement(verdict=Verdict.SNOOZED, delay=delay, refund=True)
        case Anew(payload):
            return Settlement(
                verdict=Verdict.SNOOZED, delay=timedelta(0), refund=True, payload=payload
            )
        case HandedBack():
            return Settlement(verdict=Verdict.HANDED_BACK, refund=True)
        case Waiting():
            return Settlement(
                verdict=Verdict.WAITING,
                delay=outcome.timer,
                refund=True,
                wakes=outcome.wakes,
                watched=outcome.watched,
                seen=outcome.seen,
                reason=outcome.reason,
            )
        case Lost(in_company, recorded):
            excused = in_company and not facts.alone
            return Settlement(
                verdict=Verdict.LOST,
                failure=LOST,
                refund=excused or (recorded and not in_company),
                alone=facts.alone or excused,
            )
        case _:
            assert_never(outcome)
