"""What a desk promises. Kept by `local` (over a store) and `remote` (over HTTP)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from holdfast.desk.papers import (
    AuditPage,
    KeyView,
    KeyWish,
    LimitPlace,
    LimitView,
    LimitWish,
    LogPage,
    NewKey,
    OperationView,
    OperationWish,
    SeriesView,
)
from holdfast.desk.shapes import (
    Accepted,
    AttemptView,
    Changed,
    DeadLetterGroupView,
    EventPage,
    FlowView,
    LeaseShape,
    NewTask,
    QueueView,
    RecoveryRun,
    RecoveryView,
    ResultView,
    Stats,
    TaskPage,
    TaskQuery,
    TaskType,
    TaskView,
    WhyView,
    WorkerView,
)

__all__ = ["Desk"]


class Desk(Protocol):
    """Answers to one caller. What another tenant owns is unknown to it (`UnknownTask`); whatever
    it changes is written down in the audit first."""

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    async def submit(self, wishes: Sequence[NewTask]) -> list[Accepted]:
        """All of them or none. Raises `UnknownType`, `InvalidInput`, `KeyConflict`."""
        ...

    async def tasks(self, query: TaskQuery) -> TaskPage: ...

    async def task(self, id: UUID) -> TaskView: ...

    async def arguments(self, id: UUID) -> bytes:
        """As JSON: `{"args": [...], "kwargs": {...}}`, as stored."""
        ...

    async def attempts(self, id: UUID) -> list[AttemptView]: ...

    async def result(self, id: UUID, *, wait: float = 0.0) -> ResultView:
        """How it ended; waits so many seconds for it."""
        ...

    async def why(self, id: UUID) -> list[WhyView]: ...

    async def cancel(self, ids: Sequence[UUID]) -> Changed: ...

    async def retry(self, ids: Sequence[UUID]) -> Changed:
        """A new life for what failed or was cancelled; what waits for its time goes ahead."""
        ...

    # ── dead letters ─────────────────────────────────────────────────────────────────────────

    async def dead_letter_groups(self, limit: int = 50) -> list[DeadLetterGroupView]: ...

    async def replay(self, ids: Sequence[UUID]) -> Changed:
        """Only what failed for good."""
        ...

    async def discard(self, ids: Sequence[UUID]) -> Changed: ...

    # ── durable functions ────────────────────────────────────────────────────────────────────

    async def flow(self, id: UUID) -> FlowView: ...

    async def export(self, id: UUID) -> bytes:
        """The run as JSON, for `holdfast flows check`."""
        ...

    async def signal(self, id: UUID, name: str, payload: Any = None) -> bool:
        """False: it has ended."""
        ...

    # ── the fleet ────────────────────────────────────────────────────────────────────────────

    async def queues(self) -> list[QueueView]: ...

    async def queue(self, name: str) -> QueueView:
        """Zeroes for a queue that nobody has used."""
        ...

    async def queue_why(self, name: str) -> list[WhyView]: ...

    async def pause(self, queue: str) -> QueueView: ...

    async def resume(self, queue: str) -> QueueView: ...

    async def limits(self) -> list[LimitView]: ...

    async def set_limit(self, wish: LimitWish) -> LimitView:
        """In place of the one before. On a function it goes before what its code says."""
        ...

    async def lift_limit(self, place: LimitPlace) -> LimitView | None:
        """Answers what the function's code says, which holds again."""
        ...

    async def workers(self) -> list[WorkerView]: ...

    async def worker(self, name: str) -> WorkerView:
        """By the name or the registry id. Raises `UnknownWorker`."""
        ...

    async def drain(self, name: str) -> WorkerView:
        """Ask it to claim nothing more, finish what it holds, and leave."""
        ...

    async def leases(
        self, *, expired: bool = False, worker: str | None = None, limit: int = 500
    ) -> list[LeaseShape]: ...

    async def recover(self, *, dry_run: bool = False) -> RecoveryRun: ...

    async def recoveries(
        self, *, before: int | None = None, limit: int = 50
    ) -> list[RecoveryView]: ...

    async def stats(self, queues: Sequence[str] = ()) -> Stats:
        """`queues`: to be named in any case."""
        ...

    async def events(self, after: int = 0, limit: int = 500) -> EventPage: ...

    async def task_types(self) -> list[TaskType]: ...

    # ── keys, audit, logs, bulk operations, time series ──────────────────────────────────────

    async def create_key(self, wish: KeyWish) -> NewKey: ...

    async def keys(self) -> list[KeyView]: ...

    async def key(self, id: str) -> KeyView:
        """Raises `UnknownKey`."""
        ...

    async def revoke_key(self, id: str) -> KeyView: ...

    async def audits(self, *, before: int | None = None, limit: int = 100) -> AuditPage: ...

    async def logs(self, id: UUID, *, cursor: str | None = None, limit: int = 500) -> LogPage: ...

    async def start_operation(self, wish: OperationWish) -> OperationView: ...

    async def operation(self, id: UUID) -> OperationView:
        """Raises `UnknownOperation`."""
        ...

    async def operations(self, limit: int = 50) -> list[OperationView]: ...

    async def cancel_operation(self, id: UUID) -> OperationView: ...

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
    ) -> SeriesView: ...
