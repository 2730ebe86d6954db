"""Which tasks are meant, as a store asks for them."""

from holdfast.answers import TaskFilter
from holdfast.desk.papers import TaskSelection
from holdfast.desk.shapes import TaskQuery
from holdfast.errors import InvalidInput
from holdfast.tasks.task import TaskStatus

__all__ = ["filter_of"]

_TIMES = ("created_after", "created_before", "ended_after", "ended_before")


def filter_of(wanted: TaskQuery | TaskSelection, tenant: str | None) -> TaskFilter:
    for name in _TIMES:
        at = getattr(wanted, name)
        if at is not None and at.tzinfo is None:
            raise InvalidInput(f"{name} has no time zone: write 2030-12-31T08:00:00Z")
    return TaskFilter(
        status=_status(wanted.status),
        queue=wanted.queue,
        type=wanted.type,
        tenant=tenant,
        tag=wanted.tag,
        user_id=wanted.user_id,
        error=wanted.error,
        error_type=wanted.error_type,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        ended_after=wanted.ended_after,
        ended_before=wanted.ended_before,
    )


def _status(text: str | None) -> TaskStatus | None:
    try:
        return None if text is None else TaskStatus(text)
    except ValueError:
        raise InvalidInput(f"status {text!r:.80} is none of {', '.join(TaskStatus)}") from None
