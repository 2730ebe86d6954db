"""What the desk takes and answers. Their JSON is that of the HTTP API and of `-o json`; names are
those of the public SQL views."""

from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Accepted",
    "AttemptView",
    "Changed",
    "DeadLetterGroupView",
    "ErrorView",
    "EventPage",
    "EventPlace",
    "EventView",
    "FlowEntry",
    "FlowView",
    "LeaseShape",
    "NewTask",
    "QueueView",
    "RecoveryRun",
    "RecoveryView",
    "ResultView",
    "Stats",
    "TaskEdit",
    "TaskPage",
    "TaskQuery",
    "TaskType",
    "TaskView",
    "WhyView",
    "WorkerView",
]


def _null() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Complete when born."""


class NewTask(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to be made. `input`: the same as `kwargs`; durations: seconds or "5m"; `user_id`: the
    person of your application for whom it runs."""

    type: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    input: dict[str, Any] | None = None
    version: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay: float | str | None = None
    run_at: datetime | None = None
    tags: list[str] | None = None
    requires: list[str] | None = None
    idempotency_key: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    max_tries: int | None = None
    expires: float | str | None = None
    allow_unknown: bool = False


class TaskEdit(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a task that has not begun; what is left out stays. `delay` (0: at once) and
    `expires` (null: never) count from now. `max_tries`: null for the default."""

    priority: int | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    requires: list[str] | UnsetType = UNSET
    delay: float | str | UnsetType = UNSET
    run_at: datetime | UnsetType = UNSET
    expires: float | str | UnsetType | None = UNSET
    max_tries: int | UnsetType | None = UNSET


class TaskView(Shape, frozen=True, kw_only=True):
    """A row of the `tasks` view."""

    id: UUID
    type: str
    status: str
    queue: str
    priority: int
    tenant_id: str
    user_id: str | None
    version: str
    tags: list[str]
    requires: list[str]
    try_count: int
    max_tries: int | None
    idempotency_key: str | None
    parent_id: UUID | None
    cancel_requested: bool
    reason: str | None
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

    @property
    def revision(self) -> str:
        """Of what can be changed: another one once it has been. Progress and the like move on."""
        settings = (self.queue, self.priority, self.tags, self.requires)
        limits = (self.max_tries, self.run_at, self.expires_at)
        return sha256(msgspec.json.encode([self.id, settings, limits])).hexdigest()[:20]


class Accepted(Shape, frozen=True, kw_only=True):
    """`created`: false where its idempotency key, or its id, was known already."""

    task: TaskView
    created: bool


class TaskQuery(Shape, frozen=True, kw_only=True):
    """Which tasks to list. A page may be short, or empty, where more follow: go by the cursor.
    `error`: a text that is in their last error."""

    status: str | None = None
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
    cursor: str | None = None
    limit: int = 50


class TaskPage(Shape, frozen=True, kw_only=True):
    data: list[TaskView]
    next_cursor: str | None
    has_more: bool


class ErrorView(Shape, frozen=True, kw_only=True):
    type: str
    message: str
    traceback: str | None = None


class AttemptView(Shape, frozen=True, kw_only=True):
    """One try. `ended`: done failed cancelled retry snoozed handed_back waiting lost; null while it
    runs."""

    fence: int
    worker_id: str | None
    started_at: datetime | None
    ended_at: datetime | None
    ended: str | None
    by: str | None
    error: ErrorView | None


class ResultView(Shape, frozen=True, kw_only=True):
    """How a task ended; `status` is not final while it has not."""

    id: UUID
    status: str
    result: msgspec.Raw = msgspec.field(default_factory=_null)
    error: ErrorView | None = None


class WhyView(Shape, frozen=True, kw_only=True):
    """One thing that holds a task or a queue back, and the way out. `unserved`: so many of those
    that stand first in a queue are taken by no live worker."""

    why: str
    advice: str = ""
    unserved: int = 0


class Changed(Shape, frozen=True, kw_only=True):
    """What became of an action: the tasks that it moved, and those that it could not."""

    changed: list[UUID]
    unchanged: list[UUID] = []
    status: str | None = None  # of a single task: cancelled, requested, ended


class QueueView(Shape, frozen=True, kw_only=True):
    """`claimable`: due now; `load`: claimable and running. Counts stop at 10,000: then `capped`."""

    queue: str
    paused: bool
    pending: int
    claimable: int
    running: int
    load: int
    scheduled: int
    waiting: int
    blocked: int
    failed: int
    expired_leases: int
    oldest_pending_age_seconds: float
    capped: bool


class WorkerView(Shape, frozen=True, kw_only=True):
    """One start of a worker. `status`: starting ready blocked deaf draining stale stopped.
    `tenant_id`: whose key it came with; null: it is one of the house's own. `lease_seconds`: 0: it
    says so with each claim."""

    id: str
    worker_id: str
    hostname: str
    pid: int
    status: str
    version: str
    queues: list[str]
    tags: list[str]
    capabilities: list[str]
    tenants: list[str]
    group_id: str
    types: list[str]
    priority: int
    max_concurrent: int
    active: int
    utilization: float
    tasks_acquired: int
    tasks_recovered: int
    poll_interval_seconds: float
    loop_lag_seconds: float
    lease_seconds: float
    started_at: datetime | None
    last_heartbeat: datetime | None
    tenant_id: str | None = None


class LeaseShape(Shape, frozen=True, kw_only=True):
    """Who holds what until when."""

    task_id: UUID
    type: str
    queue: str
    worker_id: str | None
    fence: int
    try_count: int
    started_at: datetime
    lease_timeout: datetime
    seconds_left: float


class LeasePage(Shape, frozen=True, kw_only=True):
    """Those that end first at the top. One that is renewed between two pages comes on both."""

    data: list[LeaseShape]
    next_cursor: str | None
    has_more: bool


class RecoveryRun(Shape, frozen=True, kw_only=True):
    """What a recovery took back, or with `dry_run` would."""

    recovered: int
    dead_lettered: int
    task_ids: list[UUID]
    took_ms: float
    dry_run: bool = False


class RecoveryView(Shape, frozen=True, kw_only=True):
    """One attempt that was lost and taken back."""

    seq: int
    task_id: UUID
    worker_id: str | None
    fence: int
    started_at: datetime | None
    at: datetime


class DeadLetterGroupView(Shape, frozen=True, kw_only=True):
    """Dead letters that look alike."""

    type: str
    error_type: str | None
    error: str | None
    count: int
    newest: datetime


class FlowEntry(Shape, frozen=True, kw_only=True):
    position: int
    kind: str
    name: str
    value: msgspec.Raw = msgspec.field(default_factory=_null)


class FlowView(Shape, frozen=True, kw_only=True):
    """A durable function: what is recorded of it, and the children that this asked for.
    `next_after`: there may be more behind this position."""

    task: TaskView
    journal: list[FlowEntry]
    children: list[TaskView]
    next_after: int | None = None


class EventView(Shape, frozen=True, kw_only=True):
    """`type`: task.done task.failed task.cancelled task.retry task.snoozed task.handed_back
    task.waiting task.lost write.refused."""

    seq: int
    type: str
    task_id: UUID
    fence: int | None
    worker_id: str | None
    by: str | None
    at: datetime
    error: str | None
    verb: str | None


class EventPage(Shape, frozen=True, kw_only=True):
    """`last`: go on after this one."""

    data: list[EventView]
    last: int


class EventPlace(Shape, frozen=True, kw_only=True):
    """The number of the last event so far."""

    last: int


class TaskType(Shape, frozen=True, kw_only=True):
    """A function that tasks can be made of, and the JSON Schema of its arguments."""

    type: str
    version: str
    queue: str
    tags: list[str]
    input_schema: dict[str, Any]
    doc: str | None = None


class WorkerCounts(Shape, frozen=True, kw_only=True):
    active: int
    draining: int
    stale: int


class LeaseCounts(Shape, frozen=True, kw_only=True):
    active: int
    expired: int


class WorkerShare(Shape, frozen=True, kw_only=True):
    """What one worker holds and did."""

    status: str
    active_jobs: int
    max_jobs: int
    active_leases: int
    tasks_acquired_total: int
    tasks_recovered_total: int
    worker_poll_interval_seconds: float


class RecoveryCounts(Shape, frozen=True, kw_only=True):
    recovered_total: int


class QueueNumbers(Shape, frozen=True, kw_only=True):
    """Plain numbers at fixed paths, also for a queue that has nothing to do."""

    pending: int = 0
    claimable: int = 0
    running: int = 0
    load: int = 0
    scheduled: int = 0
    waiting: int = 0
    failed: int = 0
    oldest_pending_age_seconds: float = 0.0
    paused: bool = False


class Stats(Shape, frozen=True, kw_only=True):
    """`GET /distributed/stats`."""

    queues: dict[str, QueueNumbers]
    totals: QueueNumbers
    workers: WorkerCounts
    leases: LeaseCounts
    recovery: RecoveryCounts
    desired_workers: dict[str, int]
    by_worker: dict[str, WorkerShare]
    server_time: datetime
