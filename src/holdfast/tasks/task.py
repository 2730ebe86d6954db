"""A task as it is asked for, as it is held, and as people see it."""

from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Literal
from uuid import UUID

import msgspec

from holdfast.errors import InvalidInput
from holdfast.tasks.lane import Lane
from holdfast.tasks.names import (
    check_delay,
    check_key,
    check_labels,
    check_name,
    check_priority,
    check_run_at,
    check_tries,
    check_type,
    check_user_id,
)
from holdfast.tasks.payload import check_payload, decode
from holdfast.tasks.retry import RetryPolicy

__all__ = [
    "Attempt",
    "Claimed",
    "Draft",
    "Failure",
    "Lease",
    "Meaning",
    "Task",
    "TaskStatus",
    "fingerprint",
    "plain",
]


class TaskStatus(StrEnum):
    """The six words that people see. Where a task's row stands says which one it is."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A task asked for, checked when it is born. `id` is made by the caller (see `new_id`), so
    that asking again after a lost answer is harmless."""

    id: UUID
    type: str
    payload: bytes = b"null"
    queue: str = "default"
    version: str = ""
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    tenant: str = "default"
    priority: int = 0
    delay: timedelta | None = None
    run_at: datetime | None = None
    expires: timedelta | None = None
    max_tries: int | None = None
    retry: RetryPolicy | None = None
    key: str | None = None
    unique: Literal["while_kept", "while_pending"] = "while_kept"
    fresh: timedelta | None = None  # the key is held until so long after a good end, and no other
    concurrency_key: str | None = None
    user_id: str | None = None  # for whom it runs, in the words of the caller's application
    parent: UUID | None = None
    work: bytes | None = None  # its fingerprint, where the payload itself does not show it

    def __post_init__(self) -> None:
        if not isinstance(self.id, UUID) or not isinstance(self.parent, UUID | None):
            raise InvalidInput(f"ids must be UUIDs, got {self.id!r:.80} and {self.parent!r:.80}")
        check_type(self.type)
        check_name("queue", self.queue)
        check_name("tenant", self.tenant)
        if self.version:
            check_name("version", self.version)
        check_priority(self.priority)
        check_payload(self.payload)
        if self.tags and check_labels("tag", self.tags) != self.tags:
            raise InvalidInput(f"tags must be sorted and each once, got {self.tags}")
        if self.requires and check_labels("requirement", self.requires) != self.requires:
            raise InvalidInput(f"requirements must be sorted and each once, got {self.requires}")
        if self.delay is not None:
            check_delay("delay", self.delay)
        if self.expires is not None:
            check_delay("expires", self.expires)
        if self.run_at is not None:
            check_run_at(self.run_at, self.delay)
        if self.max_tries is not None:
            check_tries(self.max_tries)
        if self.key is not None:
            check_key("idempotency key", self.key)
        if self.unique not in ("while_kept", "while_pending"):
            raise InvalidInput(f"unique must be while_kept or while_pending, got {self.unique!r}")
        if self.fresh is not None:
            check_delay("fresh", self.fresh)
        if self.concurrency_key is not None:
            check_key("concurrency key", self.concurrency_key)
        if self.user_id is not None:
            check_user_id(self.user_id)

    @property
    def lane(self) -> Lane:
        return Lane(
            queue=self.queue,
            type=self.type,
            version=self.version,
            tags=self.tags,
            requires=self.requires,
            tenant=self.tenant,
        )

    @property
    def lifetime(self) -> float | None:
        """Seconds after its good end for which it holds its key, and after no other end; None: for
        as long as it is kept, however it ended."""
        if self.fresh is not None:
            return self.fresh.total_seconds()
        return 0.0 if self.unique == "while_pending" else None

    @property
    def fingerprint(self) -> bytes:
        """What must be equal when the same idempotency key comes again."""
        return self.work or fingerprint(self.type, self.payload)


def fingerprint(type: str, payload: bytes) -> bytes:
    return sha256(type.encode() + b"\0" + payload).digest()[:16]


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right of one worker to one task. Only this can renew, settle, record or report.

    `grant` is the random id of one claim call and is what guards every write; `fence` only ever
    grows for a task and is for systems outside.
    """

    task: UUID
    grant: UUID
    fence: int


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task under a lease, with all that its attempt needs."""

    lease: Lease
    lane: Lane
    priority: int
    tries: int
    payload: bytes
    max_tries: int | None = None
    retry: RetryPolicy | None = None
    user_id: str | None = None
    parent: UUID | None = None
    root: UUID | None = None  # the topmost ancestor, where there is a parent
    cancel_requested: bool = False
    expires_in: float | None = None  # seconds, by the store's clock when it was granted
    alone: bool = False  # lost in company before: as a suspect, it runs as the only one
    recorded: bool = False  # a durable function that has a journal
    since: int = 0  # its first fence after an end that was no loss; 0: not known
    life: int = 0  # the fence with which its last life ended; 0: this is the first; -1: not known

    @property
    def expired(self) -> bool:
        return self.expires_in is not None and self.expires_in <= 0

    def is_suspect(self, default_tries: int) -> bool:
        """Whether it may be what kills workers: lost in company once more after that was forgiven
        (or failed: tries do not say which), or without another try to lose."""
        return self.alone and (self.tries > 1 or (self.max_tries or default_tries) == 1)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error as data: never re-imported, bounded, safe for every database."""

    type: str
    message: str
    detail: bytes | None = None  # JSON: traceback, notes, causes

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "type", plain(self.type, 200))
        msgspec.structs.force_setattr(self, "message", plain(self.message, 4000))

    @property
    def traceback(self) -> str | None:
        """Where it was raised, with its notes, the errors of a group, and what it came from,
        nearest first."""
        return decode(self.detail, _Detail).told() if self.detail else None


class _Error(msgspec.Struct):
    type: str = ""
    message: str = ""
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class _Detail(msgspec.Struct):
    traceback: str | None = None
    notes: list[str] = []
    causes: list[_Error] = []
    parts: list[_Error] = []

    def told(self) -> str | None:
        said = [self.traceback or ""]
        said += [f"note: {note}\n" for note in self.notes]
        said += [f"in it: {part}\n" for part in self.parts]
        said += [f"caused by {cause}\n{cause.traceback or ''}" for cause in self.causes]
        return "".join(said) or self.traceback


class Meaning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an error meant for the function that let it through, kept for when only data is left of
    it. `final`: it forbids another try; else the function's policy `allows` one, or not."""

    final: bool = False
    allows: bool = True
    snooze: float | None = None  # seconds
    cancelled: bool = False


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a task, from claim to settlement; `ended` is empty while it runs."""

    fence: int
    worker: int | None
    worker_name: str | None
    started_at: datetime | None
    ended_at: datetime | None
    ended: str | None  # done failed cancelled retry snoozed handed_back waiting lost
    by: str | None  # holder, recovery, operator
    failure: Failure | None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as people see it: a row of the public `tasks` view."""

    id: UUID
    type: str
    status: TaskStatus
    queue: str
    version: str
    tags: tuple[str, ...]
    requires: tuple[str, ...]
    tenant: str
    priority: int
    try_count: int
    max_tries: int | None
    cancel_requested: bool
    key: str | None
    parent: UUID | None
    reason: str | None  # why a waiting task waits
    locked_by: str | None
    lease_timeout: datetime | None
    created_at: datetime
    run_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    progress: float | None
    progress_message: str | None
    last_error: str | None
    last_error_type: str | None
    user_id: str | None = None

    @property
    def lane(self) -> Lane:
        return Lane(
            queue=self.queue,
            type=self.type,
            version=self.version,
            tags=self.tags,
            requires=self.requires,
            tenant=self.tenant,
        )


def plain(text: str, most: int) -> str:
    """A text that every database and terminal can hold."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text.replace("\0", "�").encode("utf-8", "replace").decode()
