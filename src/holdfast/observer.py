"""What a worker tells about its work, in batches. Kept by `holdfast.observers` and by users."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from holdfast.answers import Recovered
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Claimed, Draft

__all__ = ["DeadLetter", "Ended", "MetricsRecorder", "Observer", "Stuck"]


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ended, what was decided, and the seconds that it ran. `orphans`: children
    that nobody waits for any more."""

    task: Claimed
    settlement: Settlement
    seconds: float
    orphans: Sequence[UUID] = ()


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A task that failed for good while no worker held it."""

    task: UUID
    type: str
    queue: str
    reason: str


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that runs for too long; `withdrawn`: its lease was taken away."""

    task: UUID
    type: str
    queue: str
    worker: str
    seconds: float
    withdrawn: bool


class Observer:
    """Hears everything and does nothing; override what is of interest. Never raise."""

    def for_worker(self, worker: str, facts: Callable[[], Mapping[str, Any]]) -> "Observer":
        """Who hears of this worker; by default the same for all. `facts` answers, from any
        thread, what `worker_status_overview` shows of it."""
        return self

    def enqueued(self, drafts: Sequence[Draft]) -> None:
        """Tasks were accepted from this process, outside of a caller's transaction."""

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        """Tasks were granted to this worker."""

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        """Attempts were written; those refused had lost their lease."""

    def renewed(self, kept: Sequence[UUID], lost: frozenset[UUID]) -> None:
        """Leases were renewed, or found to be gone."""

    def renewal_failed(self, held: Sequence[UUID]) -> None:
        """The store did not answer a renewal."""

    def recovered(self, tasks: Sequence[Recovered]) -> None:
        """Lapsed leases were taken back by this worker."""

    def dead_lettered(self, letters: Sequence[DeadLetter]) -> None:
        """Tasks failed for good by what this process swept; attempts that it ran are `settled`."""

    def rested(self, seconds: float) -> None:
        """There is nothing to do: the next look comes after so long."""

    def lagged(self, seconds: float) -> None:
        """How late the event loop is."""

    def stuck(self, tasks: Sequence[Stuck]) -> None:
        """Attempts run for far longer than others of their kind; each is told of once."""


class MetricsRecorder(Protocol):
    """Callbacks for one's own metrics, one call for each task."""

    def task_claimed(self, *, queue: str, step_name: str, kind: str) -> Any: ...

    def task_completed(
        self, *, queue: str, step_name: str, kind: str, duration_s: float
    ) -> Any: ...

    def task_failed(
        self, *, queue: str, step_name: str, kind: str, reason: str, retrying: bool
    ) -> Any: ...

    def dead_lettered(self, *, queue: str, step_name: str, kind: str, reason: str) -> Any: ...

    def lease_renewed(self, *, task_id: str, success: bool) -> Any: ...
