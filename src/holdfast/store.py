"""What a store promises, as a few small sets of verbs. Kept by `holdfast.stores`.

Durations go in, instants are born below: only the database's clock decides. Whoever holds a
`Lease` may write with it; a lease that is no longer valid changes nothing and hears so. Every
verb may be asked again after a lost answer, since ids are made by the caller; only a claim is
not: ask `claimed` with its grant what it brought, and claim anew with a new one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from holdfast.answers import (
    Beat,
    ClaimAnswer,
    Expired,
    InVain,
    Journal,
    JournalPage,
    Lanes,
    News,
    Orphans,
    Progress,
    Recovered,
    Renewed,
    Step,
    Taking,
    WorkerRecord,
    Written,
)
from holdfast.archive import Audits, Keys, Logs, Operations, Requests, Rollups
from holdfast.steering import Steering, Views
from holdfast.tasks.cron import Cron
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Claimed, Draft, Lease

__all__ = [
    "Flows",
    "Prepared",
    "Producing",
    "Schedules",
    "Store",
    "Upkeep",
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

    async def beat(
        self, worker: WorkerRecord, held: Sequence[Lease] = (), *, acquired: int = 0
    ) -> Beat:
        """Say that the worker lives; answers what is wanted of it. `acquired`: tasks that come to
        those it acquired, where several count for it."""
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

        A settle that was already written by this very lease counts as accepted. With a `payload`
        the task goes on as a new run, in the same statement: other arguments, an empty journal;
        signals that were not consumed stay.

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

    async def news(
        self, task: UUID, children: Sequence[UUID], *, signals: Sequence[str] = ()
    ) -> News:
        """What has come for a function that is in memory; `children` and the names of `signals`
        are those it waits for. Of very many signals the oldest: the others once those are taken."""
        ...

    async def journal(self, task: UUID) -> Journal: ...

    async def journal_page(
        self, task: UUID, *, after: int = -1, limit: int = 1000, families: bool = False
    ) -> JournalPage:
        """What is behind a position, in pieces that fit into memory. `families`: only what says
        which children it asked for."""
        ...

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

    async def wake_watchers(self, ended: Sequence[UUID]) -> list[UUID]:
        """Move those on who watched these that have ended, as far as that completes what they wait
        for; answers who watches them. Called by whoever ended what others may share; a sweep
        does it for all."""
        ...

    async def in_vain(self, waiter: UUID, tasks: Sequence[UUID]) -> dict[UUID, InVain]:
        """Those of these that it would wait for for ever: they are forgotten, or wait for it."""
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

    async def recovered_total(self) -> int:
        """How many were ever taken back, by whomever."""
        ...

    async def revoke(self, task: UUID, fence: int) -> bool:
        """Withdraw the lease of this attempt, whoever renews it: its holder can write no more, and
        `recover` takes it back at once. False: the attempt has ended."""
        ...

    async def expire(self, batch: int = 500) -> list[Expired]:
        """End what was not started in time. Answers each dead letter that came of it once, also
        where a claim or the holder's own settle found first that its time was over; not what was
        recovered, which `recover` answers."""
        ...

    async def sweep_wakes(self, batch: int = 500) -> int:
        """The net under `wake_up`."""
        ...

    async def heard(self, worker: int) -> None:
        """It lives: it did something that only it can do, such as a renewal."""
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


class Schedules(Protocol):
    """Functions that run by the clock. A schedule is known by its function and its cron."""

    async def see_schedules(
        self, known: Sequence[tuple[str, Cron]]
    ) -> tuple[datetime, list[datetime]]:
        """Keep these, which a worker's code has: those that nobody asks for are forgotten with
        what ended long ago. Answers what time it is, and from when on each is not planned yet:
        a new one from its next time on."""
        ...

    async def plan(
        self, type: str, cron: Cron, *, seen: datetime, next: datetime, drafts: Sequence[Draft]
    ) -> bool:
        """Accept these tasks, and have it planned up to `next`: both, or nothing where it is not
        at `seen` any more, since somebody else has planned it."""
        ...


class Store(
    Producing,
    Working,
    Flows,
    Upkeep,
    Schedules,
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
        stopped, with `StoreError`; more than 100,000 rows or 64 MiB are refused, with
        `InvalidInput`."""
        ...

    async def migrate(self) -> int:
        """Bring the schema up to this release; answers its version. Safe at any time."""
        ...

    async def close(self) -> None: ...
