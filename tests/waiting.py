"""Waiting for what comes by itself, with an end to the patience."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(ask: Callable[[], Awaitable[T]], seconds: float = 60) -> T:
    """The first answer that is true of `ask`, asked again and again."""
    async with asyncio.timeout(seconds):
        while True:
            if answer := await ask():
                return answer
            await asyncio.sleep(0.01)
