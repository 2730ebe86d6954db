"""How long this process stood still: what a slow machine takes, a test must not hold against us."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TICK = 0.01
_USUAL = 0.02  # seconds by which a timer is late on an idle machine, with room


class Stalls:
    """By how much the timers of this event loop were late: `seconds` all in all, `worst` once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._lost = self._worst = 0.0

    @property
    def worst(self) -> float:
        return max(self._worst, self._late())

    @property
    def seconds(self) -> float:
        return self._lost + self._late()

    async def measure(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._lost, self._worst = self.seconds, self.worst
            self._since = self._loop.time()

    def _late(self) -> float:
        late = self._loop.time() - self._since - _TICK
        return late if late > _USUAL else 0.0


@asynccontextmanager
async def measured() -> AsyncIterator[Stalls]:
    stalls = Stalls()
    measuring = asyncio.create_task(stalls.measure())
    try:
        yield stalls
    finally:
        measuring.cancel()
        await asyncio.wait({measuring})
