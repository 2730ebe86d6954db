"""What the workers of the benchmark run."""

import asyncio
import time

from holdfast import current, durable

__all__ = ["hold", "noop", "stamp"]


@durable(name="bench:noop")
async def noop() -> None:
    pass


@durable(name="bench:stamp")
async def stamp() -> float:
    return time.time()


@durable(name="bench:hold", max_tries=5)
async def hold(seconds: float) -> tuple[int, float]:
    """Which grant this is, and when it began; the first one holds on to its lease."""
    began = time.time()
    if current().fence == 1:
        await asyncio.sleep(seconds)
    return current().fence, began
