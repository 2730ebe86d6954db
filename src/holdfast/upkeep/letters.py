"""Dead letters that no attempt of this process made: whoever swept them tells of them."""

from collections.abc import Sequence

from holdfast.answers import Expired, Recovered
from holdfast.errors import UnknownTask
from holdfast.observer import DeadLetter, Observer
from holdfast.store import Store
from holdfast.tasks.lifecycle import EXPIRED, LATE, LOST
from holdfast.tasks.task import Task, TaskStatus

__all__ = ["tell_of_expired", "tell_of_recovered"]


def tell_of_expired(observer: Observer, expired: Sequence[Expired]) -> None:
    if expired:
        observer.dead_lettered(
            [
                DeadLetter(task=one.task, type=one.type, queue=one.queue, reason=EXPIRED.type)
                for one in expired
            ]
        )


async def tell_of_recovered(
    store: Store, observer: Observer, recovered: Sequence[Recovered]
) -> None:
    """All of them, and which of them had no try left."""
    observer.recovered(recovered)
    letters = []
    for found in recovered:
        if found.status is not TaskStatus.FAILED:
            continue
        try:
            task = await store.get(found.lease.task)
        except UnknownTask:  # somebody discarded it in the meantime
            continue
        letters.append(
            DeadLetter(task=task.id, type=task.type, queue=task.queue, reason=_reason(task))
        )
    if letters:
        observer.dead_lettered(letters)


def _reason(task: Task) -> str:
    """Whose time was over fails for that, whoever held it."""
    over = (EXPIRED.message, LATE.message)
    return EXPIRED.type if task.last_error in over else LOST.type
