"""A worker of its own process for functions of ten steps: each step is written down outside."""

import asyncio
import logging
import os
import signal
from typing import Any

from holdfast import Holdfast, RetryPolicy, current

__all__ = ["STEPS", "build", "main"]

STEPS = 10
PATIENT = RetryPolicy(max_attempts=1000, initial_delay=0.0, jitter=0.0)


def build(url: str, ledger: str | None = None) -> tuple[Holdfast, Any]:
    app = Holdfast(url)
    file = None if ledger is None else os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def effect(i: int) -> int:
        assert file is not None
        os.write(file, f"{current().task_id} {i} {current().fence}\n".encode())
        await asyncio.sleep(0.005)
        return i

    @app.durable(name="child", retry_policy=PATIENT)
    async def child(i: int) -> int:
        return i

    @app.durable(name="ten", retry_policy=PATIENT)
    async def ten() -> Any:
        found = [await Holdfast.step(f"n{i}", effect, i) for i in range(STEPS - 2)]
        found.append(await child(100))
        pair = (Holdfast.step(f"n{i}", effect, i) for i in range(STEPS - 2, STEPS))
        return sum(found) + sum(await asyncio.gather(*pair))

    return app, ten


async def _serve(url: str, ledger: str, lease: float) -> None:
    app, _ = build(url, ledger)
    async with app:
        lifecycle = app.create_worker_lifecycle()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lifecycle.request_drain)
        await app.serve(
            lifecycle=lifecycle,
            max_concurrency=8,
            lease_duration=lease,
            recovery_interval=lease / 5,
            poll_interval=0.05,
            poll_interval_max=0.5,
        )


def main(url: str, ledger: str, lease: float) -> None:
    logging.disable(logging.ERROR)
    asyncio.run(_serve(url, ledger, lease))
