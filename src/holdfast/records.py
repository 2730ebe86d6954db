"""What a store keeps for the faces and answers to them: plain values, complete when born."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

__all__ = [
    "BOUNDS",
    "AuditRecord",
    "KeyRecord",
    "LogLine",
    "LogRecord",
    "Operation",
    "OperationState",
    "RequestAnswer",
    "Rollup",
]

# Seconds. The first bucket of a histogram counts what was shorter than the first bound, the next
# what was not and shorter than the second, and the last all that was as long as the last or longer.
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip

OperationState = Literal["pending", "running", "done", "failed", "cancelled"]


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the API: its digest, never its secret. `tenant`: None for all tenants.

    `expired`: by the database's clock, when it was asked.
    """

    id: str
    name: str
    tenant: str | None
    scopes: tuple[str, ...]
    digest: bytes
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    expired: bool

    @property
    def is_valid(self) -> bool:
        return self.revoked_at is None and not self.expired


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to whom, and when. `seq` grows in the order of the commits."""

    seq: int
    at: datetime
    actor: str
    tenant: str | None
    verb: str
    subject: str
    detail: dict[str, Any]


class RequestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`new`: do it, and end it; `running`: somebody does; `done`: this was answered;
    `other`: the key was used for another request."""

    state: Literal["new", "running", "done", "other"]
    status: int | None = None
    headers: dict[str, str] = {}
    body: bytes | None = None


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that an attempt wrote `age` seconds ago.

    `position`: 1 for the attempt's first line, and on without gaps, so that a line that is written
    again after a lost answer is there once.
    """

    position: int
    level: str
    logger: str
    message: str
    age: float = 0.0


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was kept. `left_out`: only on the last line of an attempt that wrote too much:
    how many were not kept."""

    fence: int
    position: int
    at: datetime
    level: str
    logger: str
    message: str
    left_out: int | None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Bulk work that is done bit by bit: `action` on all tasks that `filter` names.

    `rate`: tasks a second, None: as fast as it goes. `matched`: how many there are, once known;
    where it is `capped`, at least so many.
    `position`: where it goes on, in the words of whoever drives it.
    """

    id: UUID
    action: str
    filter: dict[str, Any]
    rate: float | None
    state: OperationState
    matched: int | None
    capped: bool
    done: int
    failed: int
    position: str | None
    actor: str
    tenant: str | None
    reason: str | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """What ended from `at` on, for one step of a time series.

    `lost`: attempts that recovery took back, whatever became of their tasks. `wait`: histogram of
    the time from when a task was due to its first start; `run`: of the attempts that their holder
    ended. Buckets as in `BOUNDS`.
    """

    at: datetime
    done: int
    failed: int
    cancelled: int
    retried: int
    lost: int
    wait: tuple[int, ...]
    wait_seconds: float
    run: tuple[int, ...]
    run_seconds: float
