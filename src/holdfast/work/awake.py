"""Durable functions that are in this worker's memory, by task: whoever has news for them."""

from uuid import UUID

from holdfast.answers import Ending
from holdfast.observer import Ended
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import TaskStatus
from holdfast.work.attempt import Attempt
from holdfast.work.flowing import Flowing

__all__ = ["Awake"]


class Awake:
    """Attempts that have asked for something."""

    def __init__(self) -> None:
        self._attempts: dict[UUID, Attempt] = {}

    def __contains__(self, task: UUID) -> bool:
        """It hears of what it waits for, or looks when it is put down."""
        return self._flow(task) is not None

    def add(self, attempt: Attempt) -> None:
        self._attempts[attempt.claimed.lease.task] = attempt

    def drop(self, attempt: Attempt) -> None:
        """A newer grant of the same task stays."""
        task = attempt.claimed.lease.task
        if self._attempts.get(task) is attempt:
            del self._attempts[task]

    def hint(self, task: UUID) -> bool:
        """Something may have come for it; whether it is here."""
        flow = self._flow(task)
        if flow:
            flow.hint()
        return flow is not None

    def tell_parent(self, ended: Ended) -> bool:
        """A child has ended; whether its parent is here."""
        flow = self._flow(ended.task.parent) if ended.task.parent else None
        if flow is None:
            return False
        if ended.settlement.verdict is Verdict.DONE:
            end = Ending(status=TaskStatus.DONE, result=ended.settlement.result, failure=None)
            flow.ended(ended.task.lease.task, end)
        else:
            flow.hint()
        return True

    def _flow(self, task: UUID) -> Flowing | None:
        attempt = self._attempts.get(task)
        return attempt.began if attempt else None
