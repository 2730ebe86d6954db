"""Suspects (`work/ahead.py`) run alone: whatever is lost together with them would pay.

Alone for a while, not for ever: one that hangs, or runs for hours, must not take a whole worker
with it (its parent, whose timeout would end it, may have to run here too). In processes of their
own they run side by side, a few new ones at a time: a hundred processes that start at once might
well be what kills the worker again.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from uuid import UUID

from holdfast.tasks.task import Claimed
from holdfast.work.attempt import Attempt

__all__ = ["Solitude"]

_WHILE = 10.0  # seconds to wait for the others to end, and then to run as the only one
_NEW_PROCESSES = max(8, 2 * (os.cpu_count() or 1))  # that began within that time


class Solitude:
    """At most one task that waits to be alone, and one that is; and a few in new processes. `over`
    is called when others may start again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        self._loop, self._over = loop, over
        self._late = False
        self._timer: asyncio.TimerHandle | None = None
        self.waiting: Claimed | None = None
        self.since = 0.0  # when it was taken
        self.sole: Attempt | None = None
        self._spawned: set[Attempt] = set()  # lately

    def __bool__(self) -> bool:
        """Whether nothing else may be taken."""
        return self.waiting is not None or self.sole is not None

    def wait(self, task: Claimed, since: float) -> None:
        self.waiting, self.since, self._late = task, since, False
        self._timer = self._loop.call_later(_WHILE, self._hurry)

    def take(self) -> Claimed | None:
        """Whoever waited."""
        if self._timer:
            self._timer.cancel()
        task, self.waiting = self.waiting, None
        return task

    def may_start(self, running: Collection[Attempt], held: int) -> bool:
        """Nothing else may be held, not even what has ended and is not written yet. But its own
        children: they may never end without it."""
        if self.waiting is None or self.sole is not None:
            return False
        if self._late:
            return True
        if held > 1 + len(running):
            return False
        return not running or _is_family(self.waiting.lease.task, running)

    def begin(self, attempt: Attempt) -> None:
        self.sole = attempt
        self._loop.call_later(_WHILE, self._end, attempt)

    def may_spawn(self) -> bool:
        return len(self._spawned) < _NEW_PROCESSES

    def spawn(self, attempt: Attempt) -> None:
        """It starts in a process of its own."""
        self._spawned.add(attempt)
        self._loop.call_later(_WHILE, self._settle_in, attempt)

    def is_long_since(self, moment: float) -> bool:
        return self._loop.time() - moment > _WHILE

    def left(self, attempt: Attempt) -> None:
        """It has ended."""
        self._spawned.discard(attempt)
        if self.sole is attempt:
            self.sole = None

    def _end(self, attempt: Attempt) -> None:
        if self.sole is attempt:
            self.sole = None
            self._over()

    def _settle_in(self, attempt: Attempt) -> None:
        if attempt in self._spawned:
            self._spawned.remove(attempt)
            self._over()

    def _hurry(self) -> None:
        self._late = True
        self._over()


def _is_family(parent: UUID, running: Collection[Attempt]) -> bool:
    """Whether all that runs is below this task."""
    above = {a.claimed.lease.task: a.claimed.parent for a in running}
    for task in list(above):
        seen = 0
        while task in above and seen < 100:
            task, seen = above[task] or task, seen + 1
        if task != parent:
            return False
    return True
