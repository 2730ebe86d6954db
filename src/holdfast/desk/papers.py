"""Limits, keys, audit, logs, operations and time series, as the desk takes and answers them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from holdfast.answers import LimitKind
from holdfast.desk.shapes import Shape

__all__ = [
    "ACTIONS",
    "Action",
    "AuditPage",
    "AuditQuery",
    "AuditView",
    "KeyView",
    "KeyWish",
    "LimitPlace",
    "LimitTerms",
    "LimitView",
    "LimitWish",
    "LogPage",
    "LogView",
    "NewKey",
    "OperationView",
    "OperationWish",
    "SeriesPoint",
    "SeriesView",
    "TaskSelection",
]

Action = Literal["cancel", "retry", "replay", "discard"]
ACTIONS: tuple[Action, ...] = ("cancel", "retry", "replay", "discard")


class LimitPlace(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a limit is about: a function (by its type), a queue or a tenant."""

    kind: LimitKind
    name: str


class LimitTerms(Shape, frozen=True, kw_only=True):
    """How many at once across all workers, for each value of the concurrency key (functions only),
    and how many starts in a span of time: `100/m`. Null: no limit."""

    max_concurrent: int | None = None
    max_concurrent_per_key: int | None = None
    rate_limit: str | None = None


class LimitWish(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit to be set in place of the one before; what is left out is not limited."""

    kind: LimitKind
    name: str
    max_concurrent: int | None = None
    max_concurrent_per_key: int | None = None
    rate_limit: str | None = None


class LimitView(Shape, frozen=True, kw_only=True):
    """A limit in force. `set_by`: `operator`, whose word goes before the code's, or `code`;
    `declared`: what the function's code says; `running`: null where it limits no number."""

    kind: LimitKind
    name: str
    max_concurrent: int | None
    max_concurrent_per_key: int | None
    rate_limit: str | None
    running: int | None
    set_by: Literal["operator", "code"]
    declared: LimitTerms | None


class KeyWish(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made. `scopes` may also name roles: viewer, operator, worker, admin."""

    name: str
    scopes: list[str]
    tenant_id: str | None = None
    expires: float | str | None = None


class KeyView(Shape, frozen=True, kw_only=True):
    """A key without its secret. `tenant_id`: null for all tenants."""

    id: str
    name: str
    tenant_id: str | None
    scopes: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    valid: bool


class NewKey(Shape, frozen=True, kw_only=True):
    """`key` is shown this once, and stored nowhere."""

    key: str
    record: KeyView


class AuditQuery(Shape, frozen=True, kw_only=True):
    """Which records of the audit, the newest first. `verb`: `task.cancel`, or `task.*`. A page may
    be short, or empty, where older ones follow: go by `next_before`."""

    actor: str | None = None
    verb: str | None = None
    subject: str | None = None
    tenant_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    limit: int = 100


class AuditView(Shape, frozen=True, kw_only=True):
    seq: int
    at: datetime
    actor: str
    tenant_id: str | None
    verb: str
    subject: str
    detail: dict[str, Any]


class AuditPage(Shape, frozen=True, kw_only=True):
    """The newest first; `next_before` leads to older ones."""

    data: list[AuditView]
    next_before: int | None


class LogView(Shape, frozen=True, kw_only=True):
    """A line that an attempt wrote. `left_out`: how many more there were, on the last one kept."""

    fence: int
    position: int
    at: datetime
    level: str
    logger: str
    message: str
    left_out: int | None


class LogPage(Shape, frozen=True, kw_only=True):
    data: list[LogView]
    next_cursor: str | None


class TaskSelection(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All tasks of one status, or fewer. `error`: a text that is in their last error."""

    status: str
    queue: str | None = None
    type: str | None = None
    tag: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    error: str | None = None
    error_type: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ended_after: datetime | None = None
    ended_before: datetime | None = None


class OperationWish(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same done to many tasks. `rate`: so many a second at most. `dry_run`: only count.
    `confirm_count`: it is begun only where at most so many match, and all were counted."""

    action: Action
    filter: TaskSelection
    rate: float | None = None
    dry_run: bool = False
    confirm_count: int | None = None
    reason: str | None = None


class OperationView(Shape, frozen=True, kw_only=True):
    """`state`: planned (a dry run) pending running done failed cancelled. Matches are counted up to
    10,000, and among so many tasks: beyond, `capped` is true and at least so many match. `types`,
    `sample`: of a dry run, how many of which type, and the first of them."""

    id: UUID | None
    action: str
    filter: dict[str, Any]
    rate: float | None
    state: str
    matched: int | None
    capped: bool
    done: int
    failed: int
    actor: str
    tenant_id: str | None
    reason: str | None
    error: str | None
    created_at: datetime | None
    ended_at: datetime | None
    types: dict[str, int] = msgspec.field(default_factory=dict)
    sample: list[UUID] = msgspec.field(default_factory=list)


class SeriesPoint(Shape, frozen=True, kw_only=True):
    """What ended from `at` on. Histograms count by the bounds of the series."""

    at: datetime
    done: int
    failed: int
    cancelled: int
    retried: int
    lost: int
    wait: list[int]
    wait_seconds: float
    run: list[int]
    run_seconds: float


class SeriesView(Shape, frozen=True, kw_only=True):
    """`bounds`: seconds; steps in which nothing ended are left out."""

    bounds: list[float]
    step_seconds: float
    data: list[SeriesPoint]
