"""The user's `MetricsRecorder` as an observer: one call for each task. One that raises costs its
own event only, and is heard of in the log once."""

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.observer import DeadLetter, Ended, MetricsRecorder, Observer
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import Claimed, Failure

__all__ = ["Recording"]

KIND = "task"
logger = logging.getLogger("holdfast.observers")


class Recording(Observer):
    """Calls the recorder by the names of seed 001."""

    def __init__(self, recorder: MetricsRecorder) -> None:
        self._recorder = recorder
        self._complained: set[str] = set()

    def _tell(self, what: str, **labels: Any) -> None:
        try:
            getattr(self._recorder, what)(**labels)
        except Exception:
            if what not in self._complained:
                self._complained.add(what)
                name = type(self._recorder).__name__
                logger.exception("%s.%s failed; further failures are not logged", name, what)

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        for task in tasks:
            lane = task.lane
            self._tell("task_claimed", queue=lane.queue, step_name=lane.type, kind=KIND)

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        for end in ended:
            if end.task.lease.task in refused:
                continue
            lane, reason = end.task.lane, _reason(end.settlement.failure)
            match end.settlement.verdict:
                case Verdict.DONE:
                    self._tell(
                        "task_completed",
                        queue=lane.queue,
                        step_name=lane.type,
                        kind=KIND,
                        duration_s=end.seconds,
                    )
                case Verdict.RETRY | Verdict.FAILED as verdict:
                    self._tell(
                        "task_failed",
                        queue=lane.queue,
                        step_name=lane.type,
                        kind=KIND,
                        reason=reason,
                        retrying=verdict is Verdict.RETRY,
                    )
                    if verdict is Verdict.FAILED:
                        self._tell(
                            "dead_lettered",
                            queue=lane.queue,
                            step_name=lane.type,
                            kind=KIND,
                            reason=reason,
                        )

    def dead_lettered(self, letters: Sequence[DeadLetter]) -> None:
        for one in letters:
            kind = {"queue": one.queue, "step_name": one.type, "kind": KIND, "reason": one.reason}
            self._tell("task_failed", **kind, retrying=False)
            self._tell("dead_lettered", **kind)

    def renewed(self, kept: Sequence[UUID], lost: frozenset[UUID]) -> None:
        for task in kept:
            self._tell("lease_renewed", task_id=str(task), success=True)
        for task in lost:
            self._tell("lease_renewed", task_id=str(task), success=False)

    def renewal_failed(self, held: Sequence[UUID]) -> None:
        for task in held:
            self._tell("lease_renewed", task_id=str(task), success=False)


def _reason(failure: Failure | None) -> str:
    return failure.type if failure else ""
