"""A function that ends only when others run beside it."""

import asyncio
import os
from pathlib import Path

from holdfast import durable


@durable(name="meet", max_tries=2)
async def meet(place: str, name: str, others: int) -> int:
    """The process that it ran in, once so many have come."""
    (Path(place) / name).touch()
    async with asyncio.timeout(60):
        while len(os.listdir(place)) < others:
            await asyncio.sleep(0.02)
    return os.getpid()
