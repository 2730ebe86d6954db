"""What a worker has taken and not started yet.

Most losses are nobody's fault: a machine that stops, a kill for memory, a deploy. What was lost in
company runs again like all others, once. Suspects are those that were lost once more, or have no
try to lose; they wait apart, for a process of their own or to be the only one in the worker.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.executor import Executors
from holdfast.function import Function
from holdfast.tasks.task import Claimed, Lease
from holdfast.work.attempt import Attempt
from holdfast.work.solitude import Solitude

__all__ = ["Ahead", "Functions"]

Functions = Callable[[], Mapping[tuple[str, str], Function[..., Any, Any]]]


class Ahead:
    """In the order in which they start. `put_down`: gives one back that was not started."""

    def __init__(
        self,
        solitude: Solitude,
        *,
        functions: Functions,
        executors: Executors,
        default_tries: int,
        put_down: Callable[[Claimed], None],
    ) -> None:
        self._solitude, self._functions, self._executors = solitude, functions, executors
        self._default_tries, self._put_down = default_tries, put_down
        self._tasks: deque[tuple[float, Claimed]] = deque()
        self._suspects: deque[tuple[float, Claimed]] = deque()  # that run in a process each
        self.one_at_a_time = False  # the last ones to come must each be alone in the worker
        self.is_wary = False  # some of them were lost before: nothing is to be lost with them

    def __len__(self) -> int:
        """Without the one that waits to be the only one."""
        return len(self._tasks) + len(self._suspects)

    def add(self, tasks: Sequence[Claimed], since: float, *, most_suspects: int) -> None:
        self.is_wary = any(task.alone for task in tasks)
        if self.is_wary:
            tasks = [self._forgiven(task) for task in tasks]
        self.one_at_a_time = any(map(self._must_be_alone, tasks))
        for task in tasks:
            if not self._is_suspect(task):
                self._tasks.append((since, task))
            elif self._must_be_alone(task):
                self._set_apart(task, since)
            elif len(self._suspects) < most_suspects:
                self._suspects.append((since, task))
            else:  # another worker may have a process for it
                self._put_down(task)

    def _forgiven(self, task: Claimed) -> Claimed:
        """As if it had never been lost, unless it is a suspect."""
        if task.is_suspect(self._default_tries):
            return task
        return msgspec.structs.replace(task, alone=False)

    def _set_apart(self, task: Claimed, since: float) -> None:
        """One waits here until it can be alone; the others may find another worker."""
        if self._solitude.waiting:
            self._put_down(task)
        else:
            self._solitude.wait(task, since)

    def can_start(self, running: Collection[Attempt], held: int) -> bool:
        if self._solitude.sole is not None:
            return False
        if self._tasks or (self._suspects and self._solitude.may_spawn()):
            return True
        return self._solitude.may_start(running, held)

    def next(self, running: Collection[Attempt], held: int) -> tuple[Claimed, float] | None:
        """Who starts now, and when it was taken."""
        while self.can_start(running, held):
            if self._suspects and self._solitude.may_spawn():
                since, task = self._suspects.popleft()
            elif self._tasks:
                since, task = self._tasks.popleft()
            else:
                alone = self._solitude.take()
                return (alone, self._solitude.since) if alone else None
            if not self._must_be_alone(task):
                return task, since
            self._set_apart(task, since)  # meanwhile its like turned out to need the worker
        return None

    def begin(self, attempt: Attempt) -> None:
        """It starts."""
        if self._must_be_alone(attempt.claimed):
            self._solitude.begin(attempt)
        elif self._is_suspect(attempt.claimed):
            self._solitude.spawn(attempt)

    def stale(self, before: float) -> list[Claimed]:
        """Those that were taken before this moment, in the hope that they would start soon."""
        found: list[Claimed] = []
        while self._tasks and self._tasks[0][0] < before:
            found.append(self._tasks.popleft()[1])
        return found

    def clear(self) -> list[Claimed]:
        found = [task for _, task in (*self._tasks, *self._suspects)]
        self._tasks.clear()
        self._suspects.clear()
        alone = self._solitude.take()
        return [*found, alone] if alone else found

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
