"""What a worker tells about its work, in batches. Kept by `holdfast.observers` and by users."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from holdfast.store import Recovered
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Claimed

__all__ = ["Ended", "MetricsRecorder", "Observer"]


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ended, what was decided, and the seconds that it ran."""

    task: Claimed
    settlement: Settlement
    seconds: float


class Observer:
    """Hears everything and does nothing; override what is of interest. Never raise."""

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

    def rested(self, seconds: float) -> None:
        """There is nothing to do: the next look comes after so long."""

    def lagged(self, seconds: float) -> None:
        """How late the event loop is."""


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
