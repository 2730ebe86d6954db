"""What a desk promises. Kept by `local` (over a store) and `remote` (over HTTP)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from holdfast.desk import papers, shapes
from holdfast.desk.graph import DEPTH, FlowGraph

__all__ = ["Desk"]


class Desk(Protocol):
    """Answers to one caller. What another tenant owns is unknown to it (`UnknownTask`); whatever
    it changes is written down in the audit first."""

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    async def submit(self, wishes: Sequence[shapes.NewTask]) -> list[shapes.Accepted]:
        """All of them or none. Raises `UnknownType`, `InvalidInput`, `KeyConflict`."""
        ...

    async def tasks(self, query: shapes.TaskQuery) -> shapes.TaskPage: ...

    async def task(self, id: UUID) -> shapes.TaskView: ...

    async def arguments(self, id: UUID) -> bytes:
        """As JSON: `{"args": [...], "kwargs": {...}}`, as stored."""
        ...

    async def attempts(self, id: UUID) -> list[shapes.AttemptView]: ...

    async def task_events(self, id: UUID, after: int = 0, limit: int = 500) -> shapes.EventPage:
        """What happened to it, in order."""
        ...

    async def result(self, id: UUID, *, wait: float = 0.0) -> shapes.ResultView:
        """How it ended; waits so many seconds for it."""
        ...

    async def why(self, id: UUID) -> list[shapes.WhyView]: ...

    async def edit(
        self, id: UUID, wish: shapes.TaskEdit, *, revision: str | None = None
    ) -> shapes.TaskView:
        """Change what has not begun. Raises `NotPossible` where it has; `ChangedMeanwhile` where
        it is not of this revision (`TaskView.revision`) any more."""
        ...

    async def cancel(self, ids: Sequence[UUID]) -> shapes.Changed: ...

    async def retry(self, ids: Sequence[UUID]) -> shapes.Changed:
        """A new life for what failed or was cancelled; what waits for its time goes ahead."""
        ...

    # ── dead letters ─────────────────────────────────────────────────────────────────────────

    async def dead_letter_groups(self, limit: int = 50) -> list[shapes.DeadLetterGroupView]: ...

    async def replay(self, ids: Sequence[UUID]) -> shapes.Changed:
        """Only what failed for good."""
        ...

    async def discard(self, ids: Sequence[UUID]) -> shapes.Changed: ...

    # ── durable functions ────────────────────────────────────────────────────────────────────

    async def flow(self, id: UUID, after: int = -1, limit: int = 500) -> shapes.FlowView:
        """What is recorded behind a position, and which children that asked for."""
        ...

    async def graph(self, id: UUID, *, depth: int = DEPTH) -> FlowGraph:
        """It, what it called, what that called, and so on."""
        ...

    async def export(self, id: UUID) -> bytes:
        """The run as JSON, for `holdfast flows check`."""
        ...

    async def signal(
        self, id: UUID, name: str, payload: Any = None, *, key: str | None = None
    ) -> bool:
        """False: it has ended. The same with the same `key` again is sent once."""
        ...

    # ── the fleet ────────────────────────────────────────────────────────────────────────────

    async def queues(self) -> list[shapes.QueueView]: ...

    async def queue(self, name: str) -> shapes.QueueView:
        """Zeroes for a queue that nobody has used."""
        ...

    async def queue_why(self, name: str) -> list[shapes.WhyView]: ...

    async def pause(self, queue: str) -> shapes.QueueView: ...

    async def resume(self, queue: str) -> shapes.QueueView: ...

    async def limits(self) -> list[papers.LimitView]: ...

    async def set_limit(self, wish: papers.LimitWish) -> papers.LimitView:
        """In place of the one before. On a function it goes before what its code says."""
        ...

    async def lift_limit(self, place: papers.LimitPlace) -> papers.LimitView | None:
        """Answers what the function's code says, which holds again."""
        ...

    async def workers(self) -> list[shapes.WorkerView]: ...

    async def worker(self, name: str) -> shapes.WorkerView:
        """By the name or the registry id. Raises `UnknownWorker`."""
        ...

    async def drain(self, name: str) -> shapes.WorkerView:
        """Ask it to claim nothing more, finish what it holds, and leave."""
        ...

    async def leases(
        self,
        *,
        expired: bool = False,
        worker: str | None = None,
        cursor: str | None = None,
        limit: int = 500,
    ) -> shapes.LeasePage: ...

    async def recover(self, *, dry_run: bool = False) -> shapes.RecoveryRun: ...

    async def recoveries(
        self, *, before: int | None = None, limit: int = 50
    ) -> list[shapes.RecoveryView]: ...

    async def stats(self, queues: Sequence[str] = ()) -> shapes.Stats:
        """`queues`: to be named in any case."""
        ...

    async def events(self, after: int = 0, limit: int = 500) -> shapes.EventPage: ...

    async def newest_event(self) -> int:
        """The number of the last event so far: follow from here for what is new."""
        ...

    async def task_types(self) -> list[shapes.TaskType]: ...

    # ── keys, audit, logs, bulk operations, time series ──────────────────────────────────────

    async def create_key(self, wish: papers.KeyWish) -> papers.NewKey: ...

    async def keys(self) -> list[papers.KeyView]: ...

    async def key(self, id: str) -> papers.KeyView:
        """Raises `UnknownKey`."""
        ...

    async def revoke_key(self, id: str) -> papers.KeyView: ...

    async def audits(self, query: papers.AuditQuery = ...) -> papers.AuditPage: ...

    async def logs(
        self, id: UUID, *, cursor: str | None = None, limit: int = 500
    ) -> papers.LogPage: ...

    async def start_operation(self, wish: papers.OperationWish) -> papers.OperationView: ...

    async def operation(self, id: UUID, *, wait: float = 0.0) -> papers.OperationView:
        """How far it is; waits so many seconds for its end. Raises `UnknownOperation`."""
        ...

    async def operations(
        self, *, before: UUID | None = None, limit: int = 50
    ) -> list[papers.OperationView]:
        """The newest first."""
        ...

    async def drive_operations(self) -> int:
        """Do the next one that is open and that nobody does, where the other side does not see to
        it by itself; how many were done."""
        ...

    async def cancel_operation(self, id: UUID) -> papers.OperationView: ...

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
    ) -> papers.SeriesView: ...
