"""What a durable function is about by itself, beside what it asked for: whether that would be lost
if it left memory, and whether it may lead to what is recorded."""

import asyncio
import logging
from collections.abc import Callable

from holdfast.executors.watched import Watched
from holdfast.flow.asks import Ask, Join
from holdfast.flow.awaits import Own, most_certain, own_await
from holdfast.flow.branches import Family
from holdfast.flow.deeds import Deed

__all__ = ["Business"]

logger = logging.getLogger("holdfast.flow")
_LONG = 60.0  # seconds that anything is given that may never come


class Business:
    """`main`: its own coroutine, beside its branches. `is_led`: the function has a thread, and
    coroutines only while that waits for them. `is_doing`: something in others' lives."""

    def __init__(
        self,
        name: str,
        family: Family,
        main: Callable[[], Watched | None],
        is_led: Callable[[], bool],
        is_doing: Callable[[], bool],
    ) -> None:
        self._name, self._family, self._main, self._is_led = name, family, main, is_led
        self._is_doing = is_doing
        self._loop = asyncio.get_running_loop()
        self._still = -1, 0.0  # how many steps it had taken, and since when
        self._lacks: Deed | None = None
        self._since = 0.0
        self._warned = False
        self._patience = _LONG
        self.hurries = False  # its worker is about to leave

    @property
    def moves(self) -> int:
        main = self._main()
        return self._family.moves + (main.moves if main else 0)

    @property
    def own(self) -> Own:
        """The most certain of all that it awaits."""
        if self._is_doing():
            return "surely"
        main = self._main()
        if self._is_led() and main and main.is_over:
            return "surely"  # its thread computes
        branches = (branch.watched for branch in self._family.alive)
        return most_certain(map(own_await, (main, *branches)))

    def would_be_lost(self) -> bool:
        """Whether it must stay in memory."""
        own, still = self.own, self._still_for()
        longest = _LONG / 30 if self.hurries else _LONG
        return own == "surely" or (own == "perhaps" and still < longest)

    def leads_to(self, deed: Deed, seconds: float) -> bool:
        """Whether the function may come to this by itself, as it did within `seconds` once."""
        own, still, now = self.own, self._still_for(), self._loop.time()
        if deed != self._lacks:
            self._lacks, self._since, self._warned = deed, now, False
        if own == "no" or self._is_stuck_before(deed):
            return False
        waited = now - self._since
        if waited > _LONG and not self._warned:
            self._warned = True
            logger.warning("task %s is replayed, and has not %s again yet", self._name, deed)
        if min(waited, still if own == "perhaps" else waited) < self._patience + 2 * seconds:
            return True
        self._patience = _LONG / 10  # the code may be another: what else it lacks has less time
        return False

    def _is_stuck_before(self, deed: Deed) -> bool:
        """Whether the branch that is to do this waits for one of our answers."""
        if deed.what == "gave up":
            return False  # by anybody
        branch = self._family.paths.get(deed.which.branch)
        watched = branch.watched if branch else None
        waits = watched.waits if watched else None
        return isinstance(waits, Ask | Join) and waits.is_open

    def _still_for(self) -> float:
        now, moves = self._loop.time(), self.moves
        if self._still[0] != moves:
            self._still = moves, now
        return now - self._still[1]
