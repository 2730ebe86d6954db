"""The journal of a durable function: what each row says. Pure: no await, no SQL, no clock."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from holdfast.answers import Step
from holdfast.errors import PayloadRefused
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Failure, Meaning

__all__ = [
    "NULL",
    "Abandoned",
    "Again",
    "Arrival",
    "Asked",
    "Came",
    "Dropped",
    "Entry",
    "Holder",
    "Key",
    "One",
    "Passed",
    "Past",
    "Reached",
    "Recorded",
    "digest_of",
    "one_of",
    "read",
    "write",
]


NULL = msgspec.Raw(b"null")


class Key(NamedTuple):
    """By what an ask is known again: the branch of the code that asks, what it asks for, with
    which arguments, and the how-manieth such ask of that branch it is."""

    branch: str
    name: str
    digest: str
    nth: int

    def __str__(self) -> str:
        where = f" in {self.branch}" if self.branch else ""
        number = f" (number {self.nth + 1})" if self.nth else ""
        return f"{self.name}{where}{number}"


class Asked(msgspec.Struct, frozen=True, tag="asked", tag_field="is", omit_defaults=True):
    """Something was begun: a child task, a sleep, a wait for a signal, a timeout."""

    key: Key
    what: Literal["child", "sleep", "signal", "timer"]
    task: UUID | None = None
    seconds: float | None = None


class Recorded(msgspec.Struct, frozen=True, tag="recorded", tag_field="is", omit_defaults=True):
    """A step that ran inside the function, or a value that it took: with what it came to.
    `meaning`: what its error meant for the function, where that lets it through."""

    key: Key
    result: msgspec.Raw = NULL
    failure: Failure | None = None
    what: Literal["step", "value"] = "step"
    meaning: Meaning | None = None


class One(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one ask came to; `due`: its time was over; `failed`, of a signal: what it brought does
    not fit."""

    ask: int  # the position of its `Asked`, or of its `Recorded`
    how: Literal["done", "failed", "cancelled", "due"]
    result: msgspec.Raw = NULL
    failure: Failure | None = None
    meaning: Meaning | None = None
    signal: UUID | None = None  # its id: it leaves the queue when the function has heard of it


def one_of(recorded: Recorded, position: int) -> One:
    how: Literal["done", "failed"] = "done" if recorded.failure is None else "failed"
    return One(position, how, recorded.result, recorded.failure, recorded.meaning)


class Arrival(NamedTuple):
    """What reaches the function, and which ask it answers."""

    key: Key
    one: One


class Came(msgspec.Struct, frozen=True, tag="came", tag_field="is"):
    """What reached the function at one moment, in this order."""

    all: list[One]


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned", tag_field="is", omit_defaults=True):
    """Asks that the function gave up: what they come to never reaches it. Steps have no place of
    their own before they have ended."""

    asks: list[int]
    steps: list[Key] = []


class Past(NamedTuple):
    """Something of its own that a branch awaited: the `nth` since it had asked so often."""

    branch: str
    asks: int
    nth: int

    def __str__(self) -> str:
        return f"something of its own in {self.branch or 'the function'}"


class Passed(msgspec.Struct, frozen=True, tag="passed", tag_field="is", omit_defaults=True):
    """Branches went on by themselves, or ended, and asked for nothing: in time for what reached the
    function next; or at `before`, where that was written already."""

    all: list[Past]
    before: int | None = None


class Dropped(msgspec.Struct, frozen=True, tag="dropped", tag_field="is", omit_defaults=True):
    """An attempt failed, and nothing that is recorded was done about these: steps and timeouts
    whose failures count no more, children that were given up and go on; `later` are children that
    failed: they run again in the next life only. `life`: written by that life, as the
    fence of the one before. `void`: what the function gave up or passed from this place on led to
    nothing but its failure, and need not happen again."""

    asks: list[int]
    later: list[int] = []
    life: int | None = None
    void: int | None = None


class Reached(msgspec.Struct, frozen=True, tag="reached", tag_field="is"):
    """Answers that came behind a failure which was dropped, and reached the function again."""

    asks: list[int]


class Again(msgspec.Struct, frozen=True, tag="again", tag_field="is"):
    """Such children are given a new life now."""

    asks: list[int]


class Holder(msgspec.Struct, frozen=True, tag="holder", tag_field="is"):
    """The child that was asked for was there already, by its idempotency key."""

    ask: int
    task: UUID


Entry = Asked | Recorded | Came | Abandoned | Passed | Dropped | Reached | Again | Holder

_decoder = msgspec.json.Decoder(Entry)
_encoder = msgspec.json.Encoder()


def write(position: int, entry: Entry) -> Step:
    value = _encoder.encode(entry)
    if isinstance(entry, Asked | Recorded):
        return Step(position=position, kind=entry.what, name=entry.key.name[:200], value=value)
    kind = type(entry).__name__.lower()
    return Step(position=position, kind=kind, name=kind, value=value)


def read(step: Step) -> Entry:
    entry: Entry = _decoder.decode(step.value or b"null")
    return entry


def digest_of(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Of arguments; empty for those that have no form as JSON."""
    if not args and not kwargs:
        return ""
    try:
        return blake2b(encode([list(args), kwargs]), digest_size=8).hexdigest()
    except PayloadRefused:
        return ""
