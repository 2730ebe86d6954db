"""The one loop that all chores share."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from holdfast.errors import HoldfastError

__all__ = ["BATCH", "Chore", "gently", "keep"]

logger = logging.getLogger("holdfast.upkeep")
BATCH = 500
_MOST_PASSES = 200
_MOST_GENTLE = 10_000
_REST = 4.0  # times as long as the pass before it


class Chore(msgspec.Struct, frozen=True):
    """A sweep does one bounded pass and answers how much it did: a full pass is followed by
    another one at once."""

    name: str
    every: float  # seconds
    sweep: Callable[[], Awaitable[int]]


async def keep(chores: Iterable[Chore]) -> None:
    """Do them all, each at its own pace, until cancelled. One that fails is tried again."""
    async with asyncio.TaskGroup() as group:
        for chore in chores:
            group.create_task(_keep(chore))


async def gently(sweep: Callable[[], Awaitable[int]], full: int, *, patience: float) -> None:
    """Pass after pass while they are full, with a fifth of the time: nobody waits for what they do,
    and the work goes on beside them. After so many seconds without a rest: what comes faster than
    a fifth of the time can do would pile up for ever."""
    loop = asyncio.get_running_loop()
    over = loop.time() + patience
    for _ in range(_MOST_GENTLE):
        began = loop.time()
        if await sweep() < full:
            break
        now = loop.time()
        await asyncio.sleep(max(0.0, min(_REST * (now - began), over - now)))


async def _keep(chore: Chore) -> None:
    failing = False
    await asyncio.sleep(random.random() * min(chore.every, 1.0))
    while True:
        try:
            for _ in range(_MOST_PASSES):
                if await chore.sweep() < BATCH:
                    break
        except HoldfastError as error:
            if not failing:
                logger.warning("%s failed: %s; trying again", chore.name, error)
            failing = True
        except Exception:
            logger.exception("%s failed; trying again", chore.name)
        else:
            failing = False
        # Many workers that began together shall not sweep together.
        await asyncio.sleep(chore.every * (0.9 + 0.2 * random.random()))
