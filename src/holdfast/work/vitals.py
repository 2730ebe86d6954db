"""Whether a worker is well, felt from its renewal thread. A worker that beats may still not work:

blocked   its event loop is late by `BLOCKED_AFTER` seconds or more: a function holds it up
deaf      it has free slots, but no claim was answered for `DEAF_AFTER` seconds (where its longest
          rest is more than a third of that: for three of those)
"""

import asyncio
from collections.abc import Sequence

from holdfast.answers import Recovered
from holdfast.clock import Clock
from holdfast.observer import Observer
from holdfast.work.status import WorkerState

__all__ = ["BLOCKED_AFTER", "DEAF_AFTER", "Vitals"]

BLOCKED_AFTER = 2.0  # seconds
DEAF_AFTER = 30.0


class Vitals(Observer):
    """Used by two threads: `feel` is called in the renewal's, all else on the event loop."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, longest_rest: float) -> None:
        self._clock, self._loop = clock, loop
        self._blocked_after, self._deaf_after = BLOCKED_AFTER, max(DEAF_AFTER, 3 * longest_rest)
        self._lag = 0.0
        self._sent: int | None = None
        self._answered_at = clock.boot()
        self.tasks_recovered = 0

    @property
    def lag(self) -> float:
        """Seconds by which the event loop is late, as measured last or just being measured."""
        sent = self._sent
        return self._lag if sent is None else max(self._lag, self._since(sent))

    def answered(self) -> None:
        """A claim was answered."""
        self._answered_at = self._clock.boot()

    def recovered(self, tasks: Sequence[Recovered]) -> None:
        self.tasks_recovered += len(tasks)

    def feel(self, *, full: bool) -> float:
        """Take the pulse; answers the lag."""
        if full:
            self.answered()  # it has no reason to ask
        if self._sent is None and not self._loop.is_closed():
            self._sent = self._clock.boot()
            self._loop.call_soon_threadsafe(self._pong, self._sent)
        return self.lag

    def status(self, state: WorkerState) -> str:
        """As the registry shows it."""
        if state is not WorkerState.READY:
            return str(state)
        if self.lag >= self._blocked_after:
            return "blocked"
        return "deaf" if self._since(self._answered_at) >= self._deaf_after else "ready"

    def _pong(self, sent: int) -> None:
        self._lag, self._sent = self._since(sent), None

    def _since(self, boot: int) -> float:
        return max(0.0, (self._clock.boot() - boot) / 1_000_000)
