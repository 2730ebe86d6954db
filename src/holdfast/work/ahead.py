"""What a worker has taken and not started yet.

Most losses are nobody's fault: a machine that stops, a kill for memory, a deploy. What was lost in
company runs again like all others, once. Suspects are those that were lost once more, or have no
try to lose; they wait apart, for a process of their own or to be the only one in the worker.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from typing import Any
from uuid import UUID

import msgspec

from holdfast.executor import Executors
from holdfast.function import Function
from holdfast.tasks.task import Claimed, Lease
from holdfast.work.attempt import Attempt
from holdfast.work.solitude import Solitude

__all__ = ["Ahead", "Functions"]

Functions = Callable[[], Mapping[tuple[str, str], Function[..., Any, Any]]]


class Ahead:
    """In the order in which they start. `put_down`: gives one back that was not started; `holds`:
    whether that is not written yet."""

    def __init__(
        self,
        solitude: Solitude,
        *,
        functions: Functions,
        executors: Executors,
        default_tries: int,
        put_down: Callable[[Claimed], None],
        holds: Callable[[Lease], bool],
    ) -> None:
        self._solitude, self._functions, self._executors = solitude, functions, executors
        self._default_tries, self._put_down, self._holds = default_tries, put_down, holds
        self._tasks: deque[tuple[float, Claimed]] = deque()
        self._suspects: deque[tuple[float, Claimed]] = deque()  # that run in a process each
        self._returned: list[Lease] = []  # too many that were lost before, handed back
        self.one_at_a_time = False  # the last ones to come must each be alone in the worker
        self.is_wary = False  # some of them were lost before: nothing is to be lost with them

    def __len__(self) -> int:
        """Without the one that waits to be the only one."""
        return len(self._tasks) + len(self._suspects)

    def __contains__(self, task: UUID) -> bool:
        return any(one.lease.task == task for one in self._everybody())

    def add(
        self, tasks: Sequence[Claimed], since: float, running: Collection[Attempt], *, room: int
    ) -> None:
        """`room`: slots that are free. What was lost before is kept for those alone, and nothing
        starts before the rest is handed back: it pays if its worker dies, started or not."""
        self.is_wary = any(task.alone for task in tasks)
        self.one_at_a_time = False
        if not self.is_wary:
            self._tasks.extend([(since, task) for task in tasks])
            return
        guarded = any(task.is_suspect(self._default_tries) for task in tasks)
        guarded = guarded or bool(self._suspects) or any(one.claimed.alone for one in running)
        for lost in tasks:
            task = self._forgiven(lost, guarded=guarded)
            if self._must_be_alone(task):
                self.one_at_a_time = True
                self._set_apart(task, since)
            elif lost.alone and room <= 0:  # another worker may have a slot for it
                self._returned.append(task.lease)
                self._put_down(task)
            else:
                line = self._suspects if self._is_suspect(task) else self._tasks
                line.append((since, task))
                room -= 1

    def _forgiven(self, task: Claimed, *, guarded: bool) -> Claimed:
        """As if it had never been lost, unless it is a suspect. Where suspects are `guarded` in
        processes, it gets one too: should it kill again, they would pay once more."""
        if not task.alone or task.is_suspect(self._default_tries):
            return task
        function = self._function(task)
        if guarded and function is not None and self._executors.isolates(function, task):
            return task
        return msgspec.structs.replace(task, alone=False)

    def _set_apart(self, task: Claimed, since: float) -> None:
        """One waits here until it can be alone; the others may find another worker."""
        if self._solitude.waiting:
            self._put_down(task)
        else:
            self._solitude.wait(task, since)

    def can_start(self, running: Collection[Attempt], held: Sized) -> bool:
        """`held`: all that the worker holds, also what has ended and is not written yet."""
        if not (self._tasks or self._suspects or self._solitude.waiting):
            return False
        if self._solitude.sole is not None:
            return False
        if self._returned:
            self._returned = [lease for lease in self._returned if self._holds(lease)]
            if self._returned:
                return False
        if self._tasks or (self._suspects and self._solitude.may_spawn()):
            return True
        return self._solitude.may_start(running, len(held))

    def next(self, running: Collection[Attempt], held: Sized) -> tuple[Claimed, float] | None:
        """Who starts now, and when it was taken."""
        while self.can_start(running, held):
            if self._suspects and self._solitude.may_spawn():
                since, task = self._suspects.popleft()
            elif self._tasks:
                since, task = self._tasks.popleft()
            else:
                alone = self._solitude.take()
                return (alone, self._solitude.since) if alone else None
            if not (task.alone and self._must_be_alone(task)):
                return task, since
            self._set_apart(task, since)  # meanwhile its like turned out to need the worker
        return None

    def begin(self, attempt: Attempt) -> None:
        """It starts."""
        if not attempt.claimed.alone:
            return
        if self._must_be_alone(attempt.claimed):
            self._solitude.begin(attempt)
        elif self._is_suspect(attempt.claimed):
            self._solitude.spawn(attempt)

    def stale(self, before: float, *, is_full: bool) -> list[Claimed]:
        """Those that were taken before this moment, in the hope that they would start soon. For a
        process suspects wait longer; but where all slots are taken, others may be free."""
        found: list[Claimed] = []
        while self._tasks and self._tasks[0][0] < before:
            found.append(self._tasks.popleft()[1])
        while is_full and self._suspects and self._solitude.is_long_since(self._suspects[0][0]):
            found.append(self._suspects.popleft()[1])
        return found

    def clear(self) -> list[Claimed]:
        found = self._everybody()
        self._tasks.clear()
        self._suspects.clear()
        self._solitude.take()
        return found

    def _everybody(self) -> list[Claimed]:
        found = [task for _, task in (*self._tasks, *self._suspects)]
        return [*found, self._solitude.waiting] if self._solitude.waiting else found

    def withdraw(self, ids: Collection[UUID]) -> list[Claimed]:
        """Those of these tasks that have not started: they will not."""
        found = [task for task in self._everybody() if task.lease.task in ids]
        self.lost({task.lease for task in found})
        return found

    def lost(self, gone: Collection[Lease]) -> None:
        self._tasks = deque(one for one in self._tasks if one[1].lease not in gone)
        self._suspects = deque(one for one in self._suspects if one[1].lease not in gone)
        if self._solitude.waiting and self._solitude.waiting.lease in gone:
            self._solitude.take()

    def _must_be_alone(self, task: Claimed) -> bool:
        """It was lost in company before, and may have been the cause: unless it runs in a process
        of its own, nothing else may run beside it."""
        if not task.alone:
            return False
        function = self._function(task)
        return function is not None and not self._executors.isolates(function, task)

    def _is_suspect(self, task: Claimed) -> bool:
        """Whether it was lost in company, and has no process of its own anyway."""
        if not task.alone:
            return False
        function = self._function(task)
        return function is not None and function.traits.isolation is None

    def _function(self, task: Claimed) -> Function[..., Any, Any] | None:
        return self._functions().get((task.lane.type, task.lane.version))
