"""A worker of its own process for functions that do nothing but sleep."""

import asyncio
import logging
import signal
from typing import Any

from holdfast import Holdfast

__all__ = ["build", "main"]


def build(url: str) -> tuple[Holdfast, Any]:
    app = Holdfast(url)

    @app.durable(name="sleeper")
    async def sleeper(i: int) -> int:
        await Holdfast.sleep("1d")
        return i

    return app, sleeper


async def _serve(url: str) -> None:
    app, _ = build(url)
    async with app:
        lifecycle = app.create_worker_lifecycle()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lifecycle.request_drain)
        await app.serve(lifecycle=lifecycle, max_concurrency=50, poll_interval_max=0.5)


def main(url: str) -> None:
    logging.disable(logging.ERROR)
    asyncio.run(_serve(url))
