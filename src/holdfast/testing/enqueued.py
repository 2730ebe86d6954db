"""What was enqueued in a test, and what a test expects of it."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.function import Function
from holdfast.tasks.task import Draft, Task

__all__ = ["Enqueued"]

_MOST_SHOWN = 20


class Enqueued:
    """Remembers the arguments of every task, which lists of tasks do not show."""

    def __init__(self) -> None:
        self._payloads: dict[UUID, bytes] = {}

    def enqueued(self, drafts: Sequence[Draft]) -> None:
        self._payloads |= {draft.id: draft.payload for draft in drafts}

    def check(
        self,
        pending: Sequence[Task],
        function: Function[..., Any, Any],
        *,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        queue: str | None,
        count: int | None,
    ) -> list[Task]:
        payload = None
        if args is not None or kwargs is not None:
            payload = function.signature.pack(args or (), kwargs or {})
        found = [
            task
            for task in pending
            if (task.type, task.version) == (function.name, function.version)
            and queue in (None, task.queue)
            and payload in (None, self._payloads.get(task.id))
        ]
        if len(found) == count or (count is None and found):
            return found
        wanted = function.name if payload is None else _call(function.name, payload)
        raise AssertionError(self._complaint(wanted, queue, count, len(found), pending))

    def _complaint(
        self, wanted: str, queue: str | None, count: int | None, found: int, pending: Sequence[Task]
    ) -> str:
        where = f" on queue {queue}" if queue else ""
        number = "no" if found == 0 else str(found)
        lines = [f"{number} {wanted} is enqueued{where}"]
        if count is not None:
            lines = [f"expected {count} times {wanted}{where}, found {number}"]
        lines.append("enqueued are:" if pending else "nothing is enqueued")
        lines += [f"  {self._shown(task)}" for task in pending[:_MOST_SHOWN]]
        if len(pending) > _MOST_SHOWN:
            lines.append(f"  and {len(pending) - _MOST_SHOWN} more")
        return "\n".join(lines)

    def _shown(self, task: Task) -> str:
        payload = self._payloads.get(task.id)
        call = task.type if payload is None else _call(task.type, payload)
        return f"{call} on queue {task.queue}, due {task.run_at:%Y-%m-%d %H:%M:%S}"


def _call(name: str, payload: bytes) -> str:
    return f"{name} {payload.decode()}"
