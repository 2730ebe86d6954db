"""What the workers of the benchmark run."""

import asyncio
import time

from holdfast import current, durable

__all__ = ["hold", "mixed", "noop", "stamp", "wait_and_compute"]


@durable(name="bench:noop")
async def noop() -> None:
    pass


async def wait_and_compute() -> None:
    await asyncio.sleep(0.05)
    until = time.perf_counter() + 0.0005
    while time.perf_counter() < until:
        pass


@durable(name="bench:mixed")
async def mixed() -> None:
    await wait_and_compute()


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
