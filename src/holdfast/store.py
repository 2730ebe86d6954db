"""What a store promises, as a few small sets of verbs. Kept by `holdfast.stores`.

Durations go in, instants are born below: only the database's clock decides. Whoever holds a
`Lease` may write with it; a lease that is no longer valid changes nothing and hears so. Every
verb may be asked again after a lost answer, since ids are made by the caller; only a claim is
not: ask `claimed` with its grant what it brought, and claim anew with a new one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol
from uuid import UUID

from holdfast.answers import (
    Beat,
    Cancelling,
    ClaimAnswer,
    DeadLetterGroup,
    Ending,
    EventPage,
    Journal,
    Lanes,
    LeaseView,
    LimitKind,
    LimitRecord,
    News,
    Orphans,
    Page,
    Progress,
    QueueLoad,
    Recovered,
    Recovery,
    Renewed,
    Standing,
    Step,
    Taking,
    TaskFilter,
    WorkerRecord,
    Written,
)
from holdfast.records import (
    AuditRecord,
    KeyRecord,
    LogLine,
    LogRecord,
    Operation,
    RequestAnswer,
    Rollup,
)
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Attempt, Claimed, Draft, Lease, Task

__all__ = [
    "Audits",
    "Flows",
    "Keys",
    "Logs",
    "Operations",
    "Prepared",
    "Producing",
    "Requests",
    "Rollups",
    "Steering",
    "Store",
    "Upkeep",
    "Views",
    "Working",
]


class Prepared(Protocol):
    """Tasks that lack only a connection: for callers that cannot await in their transaction."""

    def write(self, conn: Any) -> list[UUID]:
        """Write them on a connection of the caller's, in the thread that calls, inside the open
        transaction: as `enqueue(conn=...)` does, and with the same answer. May be done again
        after a rollback."""
        ...


class Producing(Protocol):
    """Bringing tasks in."""

    async def enqueue(self, drafts: Sequence[Draft], *, conn: Any = None) -> list[UUID]:
        """Accept all of them or none; answers their ids, or those that hold their keys already.

        With `conn` (a connection of the caller's, inside its transaction) they are accepted when
        that transaction commits. Raises `KeyConflict` when a key belongs to another payload.
        """
        ...

    async def prepare(self, drafts: Sequence[Draft]) -> Prepared:
        """All that needs the store's own connections; `Prepared.write(conn)` does the rest."""
        ...


class Working(Protocol):
    """What a worker does. Every write is guarded by the lease's (task, grant)."""

    async def register(self, worker: WorkerRecord) -> None: ...

    async def beat(self, worker: WorkerRecord, held: Sequence[Lease] = ()) -> Beat:
        """Say that the worker lives; answers what is wanted of it."""
        ...

    async def sign_off(self, worker: int) -> None: ...

    async def lanes(self) -> Lanes:
        """Which lanes there are. Ask again when a claim answers another change counter."""
        ...

    async def claim(
        self,
        *,
        worker: int,
        lanes: Sequence[int],
        want: int,
        lease: timedelta,
        grant: UUID | None = None,
        turns: Sequence[int] | None = None,
        after: int | None = None,
        durable: bool = False,
    ) -> ClaimAnswer:
        """Take up to `want` due tasks of these lanes under a lease.

        Highest priority first; first in, first out within a lane; between lanes of equal priority
        by `turns` (one number per lane, lower first: tenants in turn), then oldest head.
        `durable`: the fence must survive a crash of the database server (protocol, rule 1).
        """
        ...

    async def claimed(self, *, worker: int, grant: UUID) -> list[Claimed]:
        """What an earlier claim by this grant took and still holds: its answer was lost."""
        ...

    async def renew(self, leases: Sequence[Lease], lease: timedelta) -> Renewed: ...

    async def settle(
        self,
        settlements: Sequence[tuple[Lease, Settlement]],
        *,
        default_tries: int = 3,
        conn: Any = None,
        is_awake: Callable[[UUID], bool] | None = None,
    ) -> frozenset[UUID]:
        """Write what follows from each attempt's end; answers the tasks that were refused.

        A settle that was already written by this very lease counts as accepted.

        With `conn` (what `transaction()` yields, or a caller's connection inside its transaction)
        it is written when that transaction commits. Then a refusal raises `LeaseLost`, so that all
        is rolled back, and the answer is what to `wake_up` after the commit; `transaction()` does
        so by itself.

        `is_awake`: functions in the caller's memory that hear of their children's ends from it, and
        look once more when they are put down. Asked after the commit; they are not woken.
        """
        ...

    async def progress(
        self, lease: Lease, percent: float, message: str | None = None, saved: bytes | None = None
    ) -> None:
        """Report how far the work is. `saved` survives the attempt. Raises `LeaseLost`."""
        ...


class Flows(Protocol):
    """Steps, signals and wakes of durable functions."""

    async def record(
        self,
        lease: Lease,
        steps: Sequence[Step],
        *,
        consumed: Sequence[UUID] = (),
        seen: Sequence[int] = (),
        children: Sequence[Draft] = (),
        taking: Taking | None = None,
    ) -> Written:
        """Write steps, accept the children that they ask for, forget the signals and wakes that
        they took in; all or nothing. With `taking` some of the children are leased at once.

        Recording the same again is accepted. Raises `LeaseLost`, `JournalConflict` where another
        value stands at a position, or `KeyConflict`.
        """
        ...

    async def restart(self, lease: Lease, payload: bytes) -> None:
        """Go on as a new run of the same task: other arguments, an empty journal; signals that
        were not consumed stay. Raises `LeaseLost`."""
        ...

    async def news(self, task: UUID, children: Sequence[UUID]) -> News:
        """What has come for a function that is in memory; `children` are those it waits for."""
        ...

    async def journal(self, task: UUID) -> Journal: ...

    async def payload(self, task: UUID) -> bytes:
        """Its arguments. Raises `UnknownTask`."""
        ...

    async def saved(self, task: UUID) -> Progress | None: ...

    async def send_signal(self, task: UUID, id: UUID, name: str, payload: bytes) -> bool:
        """Queue a signal and wake its task; False when the task has ended. Once per signal id."""
        ...

    async def wake_up(self, tasks: Sequence[UUID]) -> int:
        """Move waiting tasks on whose wakes have come. Called after every commit that may have
        completed a wait, by both sides; a sweep calls it for all."""
        ...

    async def orphans(
        self, after: UUID | None = None, *, quiet: timedelta, batch: int = 500
    ) -> Orphans:
        """One look at so many open children, behind `after`: those whose parents have ended, more
        than `quiet` ago. Whoever ends a parent cancels its children, but may crash in between."""
        ...


class Upkeep(Protocol):
    """Chores that any process may do at any time, each one bounded pass."""

    async def promote(self, batch: int = 500) -> int:
        """Move due tasks into their lanes."""
        ...

    async def recover(self, batch: int = 500, *, default_tries: int = 3) -> list[Recovered]:
        """Take back lapsed leases: to the queue again, or to the dead letters."""
        ...

    async def revoke(self, task: UUID, fence: int) -> bool:
        """Withdraw the lease of this attempt, whoever renews it: its holder can write no more, and
        `recover` takes it back at once. False: the attempt has ended."""
        ...

    async def expire(self, batch: int = 500) -> int:
        """End what was not started in time."""
        ...

    async def sweep_wakes(self, batch: int = 500) -> int:
        """The net under `wake_up`."""
        ...

    async def mark_stale(self, after: timedelta) -> int:
        """Label workers that were not heard of."""
        ...

    async def forget_workers(
        self, after: timedelta = timedelta(days=1), *, batch: int = 500
    ) -> int:
        """Forget workers that stopped or are stale, were last heard of before that and hold
        nothing. Their attempts stay, without the worker's name."""
        ...

    async def take_turn(self, chore: str, every: timedelta) -> bool:
        """Whether to do this chore now: of all who ask, one hears True once per `every`.

        Whoever asks again after a lost answer hears False: the chore is done a turn later.
        """
        ...

    async def cleanup(
        self,
        retention: timedelta,
        *,
        dead_letters: timedelta | None = None,
        audits: timedelta = timedelta(days=365),
        batch: int = 500,
    ) -> int:
        """Forget what ended long ago, and nothing that a parent still needs. Audit records have a
        retention of their own; answered requests are kept for a day, roll-ups and operations that
        ended for 30 days. Answers how much was forgotten: from `batch` on, there may be more."""
        ...


class Steering(Protocol):
    """What an operator does."""

    async def cancel(self, tasks: Sequence[UUID]) -> dict[UUID, Cancelling]:
        """`cancelled`: it will never start; `requested`: the holder is told with its heartbeat.
        Goes down to the children."""
        ...

    async def retry(self, tasks: Sequence[UUID]) -> frozenset[UUID]:
        """Run now: what failed or was cancelled gets a new life, what waits for its time or was
        parked goes ahead; answers what was moved."""
        ...

    async def discard(self, tasks: Sequence[UUID]) -> frozenset[UUID]:
        """Forget dead letters for good; answers what was forgotten."""
        ...

    async def pause(self, queue: str) -> None: ...

    async def resume(self, queue: str) -> None: ...

    async def drain(self, worker: int) -> bool:
        """Ask a worker to drain: it hears so with its next heartbeat. False: it has stopped."""
        ...

    async def limit(
        self, kind: LimitKind, name: str, limit: Limit, *, declared: bool = False
    ) -> None:
        """Set the limit of a function, a queue or a tenant; `Limit()` lifts it. Limits per key
        belong to functions.

        `declared`: a function's code says so. The last code that speaks is right; an operator's
        word goes before it until that is lifted, and then the code's holds again."""
        ...

    async def limits(self) -> list[LimitRecord]:
        """All limits that are set, by an operator or by code."""
        ...


class Views(Protocol):
    """Questions that people ask. Never on the hot path, never a scan of the big tables."""

    async def get(self, task: UUID) -> Task: ...

    async def get_many(self, tasks: Sequence[UUID]) -> dict[UUID, Task]:
        """Those of them that are known."""
        ...

    async def standing(self, task: UUID) -> Standing:
        """Where a task stands and what holds it back. Raises `UnknownTask`."""
        ...

    async def attempts(self, task: UUID) -> list[Attempt]: ...

    async def ending(self, task: UUID) -> Ending | None:
        """How a task ended, with its result or error; None while it has not."""
        ...

    async def list_tasks(
        self, filter: TaskFilter, *, cursor: str | None = None, limit: int = 50
    ) -> Page: ...

    async def events(
        self, after: int = 0, limit: int = 500, *, tenant: str | None = None
    ) -> EventPage:
        """What happened after `after`, in order, none left out: safe to resume from the last.

        For one tenant a page may be short or empty and more may follow: resume from the page's
        `last`, which is how far was read; when it stays the same, that was all.
        """
        ...

    async def queue_loads(self, *, tenant: str | None = None) -> list[QueueLoad]:
        """All queues; or those where this tenant has been, with its own tasks only."""
        ...

    async def leases(
        self,
        *,
        lapsed: bool = False,
        older_than: timedelta | None = None,
        tenant: str | None = None,
        limit: int = 500,
    ) -> list[LeaseView]:
        """`lapsed`: only those past their end; `older_than`: only attempts that run for longer."""
        ...

    async def workers(self) -> list[WorkerRecord]: ...

    async def recoveries(self, *, before: int | None = None, limit: int = 50) -> list[Recovery]:
        """Attempts that were lost and taken back, newest first."""
        ...

    async def now(self) -> datetime:
        """By the only clock that decides."""
        ...

    async def dead_letter_groups(
        self, limit: int = 50, *, tenant: str | None = None
    ) -> list[DeadLetterGroup]:
        """Of the newest 10,000; for one tenant, of its own among the newest 100,000."""
        ...


class Keys(Protocol):
    """Keys of the API. The store sees digests, never a secret."""

    async def add_key(
        self,
        id: str,
        *,
        name: str,
        scopes: Sequence[str],
        digest: bytes,
        created_by: str,
        tenant: str | None = None,
        expires: timedelta | None = None,
    ) -> None:
        """`tenant`: None for all tenants. Raises `InvalidInput` where the id is another key's."""
        ...

    async def key(self, id: str) -> KeyRecord | None:
        """Also one that has expired or was revoked: the record says so."""
        ...

    async def keys(self) -> list[KeyRecord]: ...

    async def revoke_key(self, id: str) -> bool:
        """False: there is no such key, or it was revoked before."""
        ...

    async def touch_keys(self, ids: Sequence[str]) -> int:
        """They were used just now; written at most once a minute for each key."""
        ...


class Audits(Protocol):
    """Who did what. The log only grows: the database itself refuses changes."""

    async def note(
        self,
        actor: str,
        verb: str,
        subject: str = "",
        *,
        tenant: str | None = None,
        detail: dict[str, Any] | None = None,
    ) -> int:
        """Answers its number. Asked again after a lost answer, it may be noted twice."""
        ...

    async def audits(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        tenant: str | None = None,
        limit: int = 100,
    ) -> list[AuditRecord]:
        """The newest first, down from `before`; or on from `after`, the oldest first."""
        ...


class Requests(Protocol):
    """Requests with an idempotency key: done once, and answered the same again for a day."""

    async def begin_request(
        self,
        scope: str,
        key: str,
        digest: bytes,
        *,
        token: UUID,
        patience: timedelta = timedelta(minutes=1),
    ) -> RequestAnswer:
        """`scope`: whose keys they are: the tenant's name, or that, a space, and more.
        `token` is made by the caller for each request and says who does it. One that was begun
        and not ended within `patience` is given to whoever asks next."""
        ...

    async def end_request(
        self, scope: str, key: str, *, token: UUID, status: int, body: bytes
    ) -> bool:
        """False: it took too long, and another one does it now."""
        ...

    async def drop_request(self, scope: str, key: str, *, token: UUID) -> bool:
        """It came to nothing: the next one with this key is new."""
        ...


class Logs(Protocol):
    """What attempts say."""

    async def log(self, lease: Lease, lines: Sequence[LogLine]) -> None:
        """Keep lines of this attempt, at most 1,000 and 256 KiB in all; what is beyond is counted
        in a last line. Raises `LeaseLost`."""
        ...

    async def logs(
        self, task: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 500
    ) -> list[LogRecord]:
        """In order; `after` is the fence and position of the last line that was seen."""
        ...


class Operations(Protocol):
    """Bulk work that is done bit by bit, by one process at a time."""

    async def start_operation(
        self,
        id: UUID,
        action: str,
        filter: dict[str, Any],
        *,
        actor: str,
        rate: float | None = None,
        matched: int | None = None,
        tenant: str | None = None,
        reason: str | None = None,
    ) -> None:
        """`id` is a UUIDv7 of the caller's: started twice is started once."""
        ...

    async def operation(self, id: UUID) -> Operation | None: ...

    async def operations(
        self, *, before: UUID | None = None, tenant: str | None = None, limit: int = 50
    ) -> list[Operation]:
        """The newest first."""
        ...

    async def cancel_operation(self, id: UUID) -> bool:
        """False: it has ended, or there is none. Whoever drives it hears so at its next step."""
        ...

    async def take_operations(
        self, grant: UUID, *, lease: timedelta = timedelta(seconds=30), limit: int = 1
    ) -> list[Operation]:
        """Open ones that nobody drives, oldest first; they are this grant's until the lease ends,
        which each step extends."""
        ...

    async def advance_operation(
        self,
        id: UUID,
        grant: UUID,
        *,
        position: str | None,
        done: int,
        failed: int,
        matched: int | None = None,
        lease: timedelta = timedelta(seconds=30),
    ) -> bool:
        """How far it is, in all. False: it was cancelled, or another one drives it: stop."""
        ...

    async def end_operation(
        self,
        id: UUID,
        grant: UUID,
        state: Literal["done", "failed"] = "done",
        *,
        error: str | None = None,
    ) -> bool: ...


class Rollups(Protocol):
    """Numbers per minute."""

    async def roll_up(self, batch: int = 5000) -> int:
        """Count what happened since the last time, each event once, whoever else does so too;
        answers how many events were taken in. What is forgotten before that is counted then."""
        ...

    async def rollups(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
        tenant: str | None = None,
    ) -> list[Rollup]:
        """A time series; steps in which nothing ended are left out. Steps are whole minutes and
        begin at multiples of the step since 1970."""
        ...


class Store(
    Producing,
    Working,
    Flows,
    Upkeep,
    Steering,
    Views,
    Keys,
    Audits,
    Requests,
    Logs,
    Operations,
    Rollups,
    Protocol,
):
    """All of it, over one database.

    `one_writer`: while a transaction is open, nobody else can write.
    """

    @property
    def one_writer(self) -> bool: ...

    def as_tenant(self, tenant: str | None) -> "Store":
        """The same store in the name of one tenant; None: of all of them. It shares connections
        with this one, which alone is closed.

        It changes what a role behind the wall sees (`wall`), which in nobody's name sees nothing:
        a second net under the filters of each question, not instead of them.
        """
        ...

    async def wall(self, role: str) -> None:
        """PostgreSQL: let a role of the API's own in, and have the database itself keep it to rows
        of the tenant in whose name it asks. To be called as the owner of the schema, who is not
        affected, nor is any other role. All tables are locked for a moment."""
        ...

    async def is_walled(self) -> bool:
        """Whether this store connects as a role behind the wall."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection inside a transaction, for rows of yours and, by `conn=`, what the store
        writes: together or not at all. Leaving the block commits, an error rolls back.

        PostgreSQL: an asyncpg connection apart from those that claim and renew. SQLite: the only
        writer, so everyone waits; keep it short.
        """
        ...

    async def query(self, sql: str) -> tuple[list[str], list[Any]]:
        """One statement that only reads, as the database takes it: its columns and its rows. What
        would write is refused, with `ReadOnly`; `now()` works everywhere. After 30 seconds it is
        stopped, with `StoreError`; more than 100,000 rows are refused, with `InvalidInput`."""
        ...

    async def migrate(self) -> int:
        """Bring the schema up to this release; answers its version. Safe at any time."""
        ...

    async def close(self) -> None: ...
