"""What a store promises to people: what they do to it, and what they ask. Kept by
`holdfast.stores`, as the rest of `holdfast.store`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from holdfast.answers import (
    Cancelling,
    DeadLetterGroup,
    Editing,
    Ending,
    EventPage,
    LeaseCount,
    LeaseView,
    LimitKind,
    LimitRecord,
    Page,
    QueueLoad,
    Recovery,
    Standing,
    TaskFilter,
    WorkerRecord,
)
from holdfast.tasks.edit import Edit
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Attempt, Task

__all__ = ["Steering", "Views"]


class Steering(Protocol):
    """What an operator does."""

    async def cancel(self, tasks: Sequence[UUID], *, left: bool = False) -> dict[UUID, Cancelling]:
        """`cancelled`: it will never start; `requested`: the holder is told with its heartbeat.
        Goes down to the children. `left`: what their parents left behind when they ended, unless
        these were given a new life meanwhile: it takes them up again."""
        ...

    async def cancel_below(self, tasks: Sequence[UUID], *, left: bool = False) -> None:
        """Their children, and those of these, and not they themselves, which have ended. `left`:
        of those alone whose own cancel stands."""
        ...

    async def retry(self, tasks: Sequence[UUID]) -> frozenset[UUID]:
        """Run now: what failed or was cancelled gets a new life, what waits for its time or was
        parked goes ahead; answers what was moved."""
        ...

    async def edit(self, task: UUID, edit: Edit, *, seen: Task | None = None) -> Editing:
        """Change a task that has not begun. `begun`: it runs, has ended, or was asked to cancel:
        nothing was changed. With `seen` it is changed only where it still is so; `changed`: it is
        not any more, be it by this very call, whose answer was lost. Raises `UnknownTask`."""
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

    async def attempts(self, task: UUID, *, fence: int | None = None) -> list[Attempt]:
        """`fence`: only this one, however many there were."""
        ...

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

    async def task_events(self, task: UUID, after: int = 0, limit: int = 500) -> EventPage:
        """What happened to one task, in order: as `events`, up to where nobody may still write a
        number in between."""
        ...

    async def newest_event(self) -> int:
        """The number of the last event; 0: there is none. No smaller number comes later: where a
        transaction stays open, it is the last before the first of the latest 1,000 numbers that
        is missing."""
        ...

    async def queue_loads(
        self, *, tenant: str | None = None, exactly: bool = False
    ) -> list[QueueLoad]:
        """All queues; or those where this tenant has been, with its own tasks only. Counts stop at
        10,000 of a queue, and say so, unless they are wanted `exactly`, which takes longer."""
        ...

    async def leases(
        self,
        *,
        lapsed: bool = False,
        older_than: timedelta | None = None,
        tenant: str | None = None,
        worker: str | None = None,
        after: tuple[datetime, UUID] | None = None,
        limit: int = 500,
    ) -> list[LeaseView]:
        """Those that end first at the top. `lapsed`: only those past their end; `older_than`: only
        attempts that run for longer; `worker`: only what the workers of this name, or the one with
        this id, hold. `after`: go on behind the one with this end and task; what was renewed since
        comes again."""
        ...

    async def lease_counts(self, *, tenant: str | None = None) -> dict[int, LeaseCount]:
        """How many each worker holds, by its id; none left out."""
        ...

    async def workers(self, *, counted: bool = True) -> list[WorkerRecord]:
        """Not `counted`: without what they hold, which is as much work as there are leases."""
        ...

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
