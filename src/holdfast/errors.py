"""What can go wrong, as a tree. Every message names the way out.

HoldfastError
├── InvalidInput (also a ValueError)   refused at the door; nothing was changed
│   ├── PayloadRefused                 too large, too deep, or not JSON
│   ├── KeyConflict                    the idempotency key belongs to another payload
│   ├── NotPossible                    it does not fit how things stand
│   │   └── ChangedMeanwhile           it is not any more as the caller saw it
│   └── ReadOnly                       a statement that would write, where only reading is allowed
├── Refused                            an API does not let this caller do so
├── UnknownTask (also a LookupError)   no such task here
├── UnknownType (also a LookupError)   no such function is registered
├── UnknownWorker (also a LookupError) no such worker has registered
├── UnknownKey (also a LookupError)    no such key of the API
├── UnknownOperation (also a LookupError)  no such bulk operation
├── TaskFailed                         what was awaited failed for good; the error as data
│   └── StepFailed                     a step of a durable function failed
├── TaskCancelled                      what was awaited, or the task itself, was cancelled
├── NonRetryable                       raised by a function: another try cannot mend it
├── Snooze                             raised by a function: call me again later
├── ProcessDied                        the process that ran a function ended under it
├── LeaseLost                          the lease moved on; what was to be written was not
├── JournalConflict                    another value is already recorded for this step
├── Sealed                             data that no key at hand opens
├── Parked                             the code of a durable function does not fit its history
└── StoreError
    ├── StoreUnreachable               no answer; the call may or may not have been written
    ├── NotAStore                      something answers, but it is not a database of ours
    └── SchemaMismatch                 the database and this release do not fit each other
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

__all__ = [
    "ChangedMeanwhile",
    "HoldfastError",
    "InvalidInput",
    "JournalConflict",
    "KeyConflict",
    "LeaseLost",
    "NonRetryable",
    "NotAStore",
    "NotPossible",
    "Parked",
    "PayloadRefused",
    "ProcessDied",
    "ReadOnly",
    "Refused",
    "SchemaMismatch",
    "Sealed",
    "Snooze",
    "StepFailed",
    "StoreError",
    "StoreUnreachable",
    "TaskCancelled",
    "TaskFailed",
    "UnknownKey",
    "UnknownOperation",
    "UnknownTask",
    "UnknownType",
    "UnknownWorker",
]


class HoldfastError(Exception):
    """The root: catch this to catch everything that Holdfast raises on purpose."""


class InvalidInput(HoldfastError, ValueError):
    """A value was refused before anything was changed."""


class PayloadRefused(InvalidInput):
    """A payload or result that cannot be stored as bounded JSON."""


class KeyConflict(InvalidInput):
    """An idempotency key that is already taken by a task with another type or payload.

    `refused`: where several were asked for together, all such conflicts by the id of their task.
    """

    def __init__(self, key: str, tenant: str, existing: Any) -> None:
        self.key, self.tenant, self.existing = key, tenant, existing
        self.refused: Mapping[Any, KeyConflict] = {}
        super().__init__(
            f"idempotency key {key!r} of tenant {tenant!r} belongs to task {existing}, which has "
            "another type or payload; use a new key for new work, or send the same payload again"
        )


class NotPossible(InvalidInput):
    """What was asked for does not fit how things stand: nothing was changed."""


class ChangedMeanwhile(NotPossible):
    """Somebody else was quicker: look again, and decide anew."""


class ReadOnly(InvalidInput):
    """A statement that would write, where only reading is allowed."""

    def __init__(self) -> None:
        super().__init__("this statement would write; only select, with, values and explain work")


class Refused(HoldfastError):
    """An API knows no such key, or the key may not do this."""


class UnknownTask(HoldfastError, LookupError):
    """A task id that the store does not know (any more)."""

    def __init__(self, ids: Iterable[Any]) -> None:
        self.ids = tuple(ids)
        super().__init__(
            f"no such task: {', '.join(map(str, self.ids))}; it was never accepted here, "
            "was discarded, or is past its retention"
        )


class UnknownType(HoldfastError, LookupError):
    """A type that no function is registered for; or that is short for several: `among` them."""

    def __init__(self, type: str, known: Iterable[str], among: Iterable[str] = ()) -> None:
        self.type, self.known, self.among = type, tuple(sorted(known)), tuple(sorted(among))
        super().__init__(self._told())

    def _told(self) -> str:
        if self.among:
            return (
                f"{self.type!r} could be any of {', '.join(self.among)}; say which, by its full "
                "name and its version (what stands behind the @)"
            )
        told = f"no function is registered as {self.type!r}"
        name, at, version = self.type.rpartition("@")
        ends = (f":{self.type}", f".{self.type}")
        if at and any(one == self.type or one.endswith(ends) for one in self.known):
            return f"{told}; a version is said apart: {name}, and --version {version} (version=)"
        names = ", ".join(self.known) or "none; import the modules that hold your functions"
        return f"{told}; known are: {names}"


class UnknownWorker(HoldfastError, LookupError):
    """A worker that the store does not know (any more)."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no worker is known as {name!r:.200}; `holdfast workers ls` names them")


class UnknownKey(HoldfastError, LookupError):
    """A key of the API that the store does not know. Its secret is not part of its id."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"no key has the id {id!r:.40}; `holdfast token ls` names them")


class UnknownOperation(HoldfastError, LookupError):
    """A bulk operation that the store does not know (any more)."""

    def __init__(self, id: Any) -> None:
        self.id = id
        super().__init__(f"no operation has the id {id}")


class TaskFailed(HoldfastError):
    """A task that failed for good. The original error comes as data, never as its own class."""

    def __init__(self, task: Any, type: str, message: str, traceback: str | None = None) -> None:
        self.task, self.type, self.message, self.traceback = task, type, message, traceback
        super().__init__(f"task {task} failed with {type}: {message}")


class StepFailed(TaskFailed):
    """A step that failed. `original` is the error itself only where the step ran just now: decide
    by `type`, which is the same whenever the function is replayed."""

    def __init__(
        self, step: str, type: str, message: str, original: BaseException | None = None
    ) -> None:
        super().__init__(None, type, message)
        self.step, self.original = step, original
        self.failure: Any = None  # as it is recorded, and what it meant for the function then
        self.meaning: Any = None
        self.args = (f"step {step!r} failed with {type}: {message}",)


class TaskCancelled(HoldfastError):
    """A task that was cancelled: it was awaited, or it is the running one and was asked to stop."""

    def __init__(self, task: Any) -> None:
        self.task = task
        super().__init__(f"task {task} was cancelled")


class NonRetryable(HoldfastError):
    """Raise this where another try cannot help: the task goes straight to the dead letters."""


class Snooze(HoldfastError):
    """Raise this to be called again after `delay` ("30s", seconds, or a timedelta); the attempt
    is given back."""

    def __init__(self, delay: str | float | timedelta) -> None:
        self.delay = delay
        super().__init__(f"snoozed for {delay}")


class ProcessDied(HoldfastError):
    """The process that ran a function crashed, ended itself or was killed: this call only failed.

    It is tried again while tries are left, whatever `retry_for` says of errors.
    """


class LeaseLost(HoldfastError):
    """A worker's write that came too late: the task has moved on, and nothing was changed."""

    def __init__(
        self, verb: str, task: Any, leases: Iterable[Any] = (), *, why: str | None = None
    ) -> None:
        self.verb, self.task, self.leases = verb, task, tuple(leases)
        why = why or (
            "this lease is no longer valid. Stop the work; the task was recovered, settled or "
            "cancelled in the meantime"
        )
        super().__init__(f"{verb} of task {task} was refused: {why}")


class JournalConflict(HoldfastError):
    """A step position that is already recorded with another value."""

    def __init__(self, task: Any, positions: Iterable[int]) -> None:
        self.task, self.positions = task, tuple(positions)
        super().__init__(
            f"task {task} has other values recorded at step {', '.join(map(str, self.positions))}; "
            "read the journal again and continue from what it says"
        )


class Sealed(HoldfastError):
    """What is stored cannot be opened: its key is not in the ring, or it was altered or moved."""


class Parked(HoldfastError):
    """What is recorded of a durable function and what its code asks for do not fit: the task waits
    for somebody to mend the one or the other."""


class StoreError(HoldfastError):
    """The database could not do what was asked."""


class TaskEnds(StoreError):
    """Its run would have begun anew, but it was cancelled, or its time is over."""


class StoreUnreachable(StoreError):
    """The database does not answer."""


class NotAStore(StoreError):
    """The address leads to something that is not a Holdfast database."""


class SchemaMismatch(StoreError):
    """The schema in the database is too old or too new for this release."""
