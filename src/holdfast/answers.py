"""What a store answers: plain values, complete when born."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from holdfast.tasks.lane import Lane
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Claimed, Failure, Lease, Task, TaskStatus

__all__ = [
    "STALE_AFTER",
    "Beat",
    "Cancelling",
    "ClaimAnswer",
    "DeadLetterGroup",
    "Editing",
    "Ending",
    "Event",
    "EventPage",
    "Expired",
    "Gate",
    "InVain",
    "Journal",
    "JournalPage",
    "Lanes",
    "LeaseCount",
    "LeaseView",
    "Letters",
    "LimitKind",
    "LimitRecord",
    "News",
    "Orphans",
    "Page",
    "Progress",
    "QueueLoad",
    "Recovered",
    "Recovery",
    "Renewed",
    "Signal",
    "Standing",
    "Step",
    "Taking",
    "TaskFilter",
    "WorkerRecord",
    "Written",
]


class ClaimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim brought, and when to ask again.

    `contended`: work was seen but others were taking it; ask again at once, with this as `after`.
    `full`: work waits behind a limit; a settle will make room.
    `next_due`: seconds until the next delayed task is due or a rate opens.
    `lanes`: moves when lanes were added; then look up anew which lanes to serve.
    """

    grant: UUID
    tasks: list[Claimed]
    contended: int | None
    full: bool
    next_due: float | None
    lanes: int


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes by id, as of one state of their change counter.

    `limited`: they pass a limit of their function or queue (how many run, also per key, or a
    rate); nothing is taken from them before a slot is free.
    """

    change: int
    lanes: dict[int, Lane]
    limited: frozenset[int]


class Renewed(msgspec.Struct, frozen=True):
    """Which leases are gone, and which tasks were asked to cancel."""

    lost: frozenset[UUID]
    cancel: frozenset[UUID]


class Beat(msgspec.Struct, frozen=True):
    """What is wanted of a worker: which of its tasks were asked to cancel, and whether it is to
    drain."""

    cancel: frozenset[UUID]
    drain: bool


class Recovered(msgspec.Struct, frozen=True):
    """One lapsed lease that was taken back, and what became of its task."""

    lease: Lease
    worker: int
    status: TaskStatus
    late: float  # seconds since its end


class Expired(msgspec.Struct, frozen=True):
    """A task that ended since its time was over before it could start (again)."""

    task: UUID
    type: str
    queue: str


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was lost and taken back. `worker_name`: None where it is forgotten."""

    seq: int
    task: UUID
    worker_name: str | None
    fence: int
    started_at: datetime | None
    at: datetime


STALE_AFTER = timedelta(seconds=90)  # three heartbeats: a worker that was not heard of for longer


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a worker process. `id` is random per start; `name` is for people.

    `tenant`: whose key it came with; None: it is one of the house's own.
    `queues`, `tags`, `tenants`: what it takes; none: all. `group_id`: a label of those that belong
    together. `types`: the functions that it knows, as `name` or `name@version`. `active`: how many
    of its slots are taken, by the leases that it holds, whatever it says itself.
    `tasks_acquired`, `tasks_recovered`: since its start; `poll_interval`, `loop_lag`, `lease`:
    seconds, of a lease 0 where it says so with each claim. But for `active` this is what the worker
    said with its last heartbeat; `status` is stale where that is long ago.
    """

    id: int
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    group_id: str = ""
    types: tuple[str, ...] = ()
    priority: int = 0
    slots: int = 1
    active: int = 0
    status: str = "ready"
    tasks_acquired: int = 0
    tasks_recovered: int = 0
    poll_interval: float = 0.0
    loop_lag: float = 0.0
    lease: float = 0.0
    started_at: datetime | None = None
    last_heartbeat: datetime | None = None
    tenant: str | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a task says it is, and what it saved for its next attempt."""

    percent: float
    message: str | None
    saved: bytes | None
    updated_at: datetime


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded entry of a durable function, byte for byte."""

    position: int
    name: str
    kind: str = "step"
    value: bytes | None = None


class Taking(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that takes children at once as they are made: the first `most` of them, where
    nothing limits or pauses their lanes, and none was asked to wait for anything.

    Not `durable`: one child by itself may begin before it is on the disk. Its end waits for that,
    as any does. A crash of the database in between, never of the worker alone, forgets it."""

    worker: int
    grant: UUID
    lease: timedelta
    most: int
    durable: bool = True


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The children that were accepted, by id, or those that hold their keys already; `leased`:
    those that their taker holds. Their fence is 1, and it is their first try."""

    children: list[UUID]
    leased: frozenset[UUID]


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent and not yet consumed, oldest first."""

    id: UUID
    name: str
    payload: bytes


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of a durable function; `ages`: for each step, the seconds since then;
    `since`: the fence of the first one, by which one run of a function is told from the next."""

    steps: list[Step]
    ages: list[float]
    since: int | None = None


class JournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries, in order. `next_after`: there may be more behind this position."""

    steps: list[Step]
    next_after: int | None = None


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What has come for a durable function: signals not yet consumed, oldest first, and how those
    of its children ended that have. All ends that the wakes tell of are among them."""

    wakes: list[int]
    signals: list[Signal]
    endings: "dict[UUID, Ending]"


InVain = Literal[
    "forgotten", "circle"
]  # why nothing comes of a wait; a circle: it waits for whoever waits


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """Open children whose parents have ended; `last`: go on behind it, None: that was all."""

    tasks: list[UUID]
    last: UUID | None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, or a late write that was refused, in order of `seq`."""

    seq: int
    kind: str  # done failed cancelled retry snoozed handed_back waiting lost · refused
    task: UUID
    fence: int | None
    worker: int | None
    by: str | None  # holder recovery operator
    at: datetime
    error: str | None
    verb: str | None  # of a refused write
    type: str | None = None  # of the task, and where it belongs
    queue: str | None = None
    tenant: str | None = None


class EventPage(list[Event]):
    """Events in order. `last`: how far was read; resume there, also where nothing was found."""

    def __init__(self, events: Iterable[Event], last: int) -> None:
        super().__init__(events)
        self.last = last


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one queue. Counts stop at `CAP`, and for one tenant among many others sooner:
    then `capped` is true and they are floors."""

    queue: str
    paused: bool
    ready: int
    scheduled: int
    blocked: int
    waiting: int
    running: int
    expired: int
    failed: int
    oldest_age: float | None
    capped: bool


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as people see it."""

    task: UUID
    type: str
    queue: str
    worker: int
    worker_name: str | None
    fence: int
    tries: int
    started_at: datetime
    lease_timeout: datetime
    seconds_left: float
    tenant: str


class LeaseCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many leases one worker holds; `lapsed`: how many of them are past their end."""

    held: int
    lapsed: int


LimitKind = Literal["type", "queue", "tenant"]


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that is set. `limit`: what is in force; `declared`: what the function's code says;
    `held`: an operator's word goes before the code's. `running`: how many it counts; None where it
    limits no number."""

    kind: LimitKind
    name: str
    limit: Limit
    declared: Limit
    held: bool
    running: int | None


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a task passes, and how much of it is taken.

    `running`: None where nothing limits it. `running_of_key`: those with the task's concurrency
    key that were let in: they run, or wait for a worker and nothing else.
    `rate_opens`: seconds until the rate lets the next one start; None: at once, or no rate.
    """

    kind: LimitKind
    name: str
    max_running: int | None
    running: int | None
    max_per_key: int | None
    running_of_key: int | None
    rate_opens: float | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task stands, and what holds it back.

    `due`: seconds until its time comes; None: it has come, or nothing but a wake is waited for.
    `ahead`: how many come before it in its lane (blocked: of its key), at most 1,000; None where
    it does not stand in line.
    `occupied_by`: up to 10 running tasks that fill a limit which it passes, longest first.
    `lease_left`: seconds; negative when the lease has lapsed.
    """

    task: UUID
    place: Literal["ready", "later", "blocked", "lease", "outcome", "waiting"]
    lane: Lane
    due: float | None
    queue_paused: bool
    concurrency_key: str | None
    gates: tuple[Gate, ...]
    ahead: int | None
    occupied_by: tuple[UUID, ...]
    cancel_requested: bool
    reason: str | None
    holder: str | None
    lease_left: float | None


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that look alike."""

    type: str
    error_type: str | None
    error: str | None
    count: int
    newest: datetime


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended."""

    status: TaskStatus
    result: bytes | None
    failure: Failure | None


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list. None: all. `error`: a text that is in their last error, in whatever
    case; times: from `after` on, and before `before`."""

    status: TaskStatus | None = None
    queue: str | None = None
    type: str | None = None
    tenant: str | None = None
    tag: str | None = None
    user_id: str | None = None
    error: str | None = None
    error_type: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ended_after: datetime | None = None
    ended_before: datetime | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks, and where the next page begins (None: no more). It may be short, or empty, where more
    follow: errors, times and one user's statuses are looked at in what was found by the rest.

    Pending tasks come in the order in which they will be taken, ended ones by their end, newest
    first, all others, and all of one user, by their creation, newest first.
    """

    tasks: list[Task]
    next: str | None


class Letters(list[Task]):
    """Dead letters, newest first. `next`: where the next page begins (None: no more)."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.tasks)
        self.next = page.next


Cancelling = Literal["cancelled", "requested", "ended", "unknown"]
Editing = Literal["edited", "changed", "begun"]
