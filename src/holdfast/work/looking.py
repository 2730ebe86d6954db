"""Looking for work: a claim when there may be something, and a rest when there was not."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from holdfast.errors import StoreError
from holdfast.observer import Observer
from holdfast.tasks.task import Claimed
from holdfast.work.claiming import Claiming, Found
from holdfast.work.pace import Pace
from holdfast.work.slots import Slots

__all__ = ["Looking"]

logger = logging.getLogger("holdfast.worker")
_FEW = 10  # tasks that somebody may be waiting for; more are a backlog
_LAST_LOOKS = (0.0, 0.5)  # seconds, one after the other
_GRACES = 4  # while hints go on: also those of a low priority get their turn


class Looking:
    """Feeds the slots. `astray`: called with tasks whose grant was lost for a while."""

    def __init__(
        self,
        *,
        claiming: Claiming,
        slots: Callable[[], Slots],
        pace: Pace,
        observer: Observer,
        answered: Callable[[], None],
        astray: Callable[[], None],
    ) -> None:
        self._claiming, self._slots, self._pace = claiming, slots, pace
        self._observer, self._answered, self._found_astray = observer, answered, astray
        self._wake = asyncio.Event()
        self._stopping = False
        self._hinted_at: float | None = None  # the last time, by the event loop's clock
        self.grace = 0.0  # seconds to wait for workers of a higher priority
        self.acquired = 0
        self.is_idle = False  # the last claim brought all that there was, and nothing came since

    def look_now(self) -> None:
        """There may be work: do not rest."""
        self._pace.snap_back()
        self.look_again()

    def look_again(self) -> None:
        self.is_idle = False
        self._wake.set()

    def hint(self) -> None:
        """Others were told as well."""
        self._hinted_at = asyncio.get_running_loop().time()
        self.look_now()

    def hunger(self) -> None:
        """There is room for more: if there is more."""
        if not self.is_idle:
            self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def take(self, tasks: list[Claimed]) -> None:
        self.acquired += len(tasks)
        self._observer.claimed(tasks)
        self._slots().take(tasks)

    async def run(self) -> None:
        """Until `stop`."""
        reachable = True
        while not self._stopping:
            self._wake.clear()
            await self._look_for_astray()
            now, ahead = self._slots().appetite()
            if now + ahead <= 0:
                self.is_idle = False  # as long as nobody looks, nobody knows
                await self._rest(_sooner(self._slots().patience, self._claiming.patience))
                self._slots().hand_back_stale()
                continue
            try:
                found = await self._claiming.claim(now, ahead)
            except StoreError as error:
                if reachable:
                    logger.warning("could not claim: %s; trying again", error)
                reachable = False
                await self._rest(self._pace.rest(None, random.random()))
                continue
            reachable = True
            self._answered()
            await self._take_in(found)
            self._slots().hand_back_stale()

    async def _take_in(self, found: Found) -> None:
        self.is_idle = found.was_all and not self._wake.is_set()
        if found.tasks:
            self._pace.snap_back()
            self.take(found.tasks)
            if len(found.tasks) <= _FEW:
                await asyncio.sleep(0)  # they start before we ask for more
        # Where a claim brought less than it could have, only a hint or a clock brings more.
        if self.is_idle or not (found.tasks or found.again):
            seconds = self._pace.rest(found.next_due, random.random())
            self._observer.rested(seconds)
            # Not past what was taken ahead, which somebody else may be free for.
            patience = self._slots().patience
            # What is due at that time is due for all: who gives way comes a grace later.
            await self._rest(_sooner(seconds + self.grace, patience, self._claiming.patience))
            await self._give_way()
        elif found.was_all:  # so what it was woken for has come since
            await self._give_way()

    async def last_look(self) -> None:
        """For claims whose answer was lost, before the worker leaves: what they brought is handed
        back. Twice, since they may be on their way still."""
        for pause in _LAST_LOOKS:
            if self._claiming.patience is None:
                return
            await asyncio.sleep(pause)
            if tasks := await self._claiming.look_for_astray(at_once=True):
                self.take(tasks)

    async def _look_for_astray(self) -> None:
        if self._claiming.patience != 0.0:
            return
        if tasks := await self._claiming.look_for_astray():
            self.take(tasks)
            self._found_astray()

    async def _rest(self, seconds: float | None) -> None:
        if not self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    async def _give_way(self) -> None:
        """Idle workers of a higher priority heard the same hints: what came within a grace is
        theirs. So it looks into a gap between two hints, a chance bit longer than a grace, or what
        comes as often as that would meet it just as it looks; and where there are no such gaps,
        into ever smaller ones."""
        loop, graces = asyncio.get_running_loop(), 0
        while (heard := self._hinted_at) is not None and not self._stopping:
            quiet = self.grace * (1 + random.random()) / 2 ** max(0, graces + 1 - _GRACES)
            if (left := heard + quiet - loop.time()) > 0:
                await asyncio.sleep(left)
            if self._hinted_at == heard:
                break
            graces += 1


def _sooner(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)
