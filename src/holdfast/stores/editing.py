"""Changing what has not begun: read, and written where it still is as it was read."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import UNSET, UnsetType

from holdfast.answers import Editing
from holdfast.errors import InvalidInput
from holdfast.stores.producing import Producing
from holdfast.stores.views import Views
from holdfast.tasks.edit import Edit
from holdfast.tasks.task import Task

__all__ = ["Edits"]

_TRIES = 10  # where others change the same task


class Edits(Producing, Views):
    """Keeps `holdfast.steering.Steering.edit`."""

    async def edit(self, task: UUID, edit: Edit, *, seen: Task | None = None) -> Editing:
        for _ in range(_TRIES):
            found = await self.get(task)
            if seen is not None and _settings(found) != _settings(seen):
                return "changed"
            _check_tries(found, edit)
            answer = await self._edit(found, edit)
            if answer != "changed" or seen is not None:
                return answer
        return "changed"

    async def _edit(self, task: Task, edit: Edit) -> Editing:
        lane = edit.lane(task.lane)
        ids = await self._intern([task.lane, lane], None)
        answer: Editing = await self._value(
            "edit",
            id=task.id,
            seen_lane=ids[task.lane],
            seen_np=-task.priority,
            seen_max_tries=task.max_tries,
            seen_expires_at=task.expires_at,
            seen_run_at=task.run_at,
            lane=ids[lane],
            np=-_given(edit.priority, task.priority),
            max_tries=_given(edit.max_tries, task.max_tries),
            new_expiry=edit.expires is not UNSET,
            expires=_seconds(edit.expires),
            new_time=edit.moves_time,
            delay=_seconds(edit.delay),
            run_at=_given(edit.run_at, None),
        )
        return answer


def _check_tries(task: Task, edit: Edit) -> None:
    tries = _given(edit.max_tries, None)
    if tries not in (None, task.max_tries) and tries <= task.try_count:
        often = "once" if task.try_count == 1 else f"{task.try_count} times"
        raise InvalidInput(
            f"task {task.id} was tried {often} already; max_tries must be more, or cancel it"
        )


def _settings(task: Task) -> tuple[Any, ...]:
    return task.lane, task.priority, task.max_tries, task.expires_at, task.run_at


def _given(value: Any, otherwise: Any) -> Any:
    return otherwise if value is UNSET else value


def _seconds(span: timedelta | UnsetType | None) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) else None
