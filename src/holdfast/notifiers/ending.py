"""Ending a task that runs inside a driver."""

import asyncio
from typing import Any

__all__ = ["end"]

_PATIENCE = 1.0


async def end(task: asyncio.Task[Any]) -> None:
    """Ask again until it has ended: a driver may swallow a cancellation that comes together with
    what it waited for, as `asyncio.wait_for` does before Python 3.12."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_PATIENCE)
