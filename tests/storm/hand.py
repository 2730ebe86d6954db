"""A real worker in a process of its own, which may be killed or stopped at any moment.

It keeps a ledger outside of the database: "+" with the task's id, its fence and the time before
work on it starts, "=" after the store has accepted its end, "!" where it was refused.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Holdfast, Observer, current
from holdfast.clock import SystemClock
from holdfast.observer import Ended
from holdfast.tasks.lifecycle import Verdict

TRIES = 1000


class Hired(msgspec.Struct, frozen=True, kw_only=True):
    """How a hand works."""

    url: str
    name: str
    ledger: str
    lease: float
    slots: int = 8
    recovery: float | None = None
    heartbeat: float | None = None
    drain: float = 5.0
    wrong_by: float = 0.0  # seconds that its clocks go ahead
    redis: str | None = None


class WrongClock(SystemClock):
    """Of a machine whose clocks were never set."""

    def __init__(self, seconds: float) -> None:
        self._ahead = round(seconds * 1_000_000)

    def wall(self) -> int:
        return super().wall() + self._ahead

    def boot(self) -> int:
        return super().boot() + abs(self._ahead)


class Ledger(Observer):
    """What this process did, as far as it came."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, mark: str, task: UUID, fence: int) -> None:
        os.write(self._file, f"{mark} {task} {fence} {time.time():.6f}\n".encode())

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        for end in ended:
            lease = end.task.lease
            if lease.task in refused:
                self.write("!", lease.task, lease.fence)
            elif end.settlement.verdict is Verdict.DONE:
                self.write("=", lease.task, lease.fence)


def build(hired: Hired | None, url: str) -> tuple[Holdfast, dict[str, Any]]:
    """The app; for those who only dispatch, without anyone hired."""
    ledger = Ledger(hired.ledger) if hired else None
    redis = hired.redis if hired else None
    app = Holdfast(
        url,
        observers=[ledger] if ledger else (),
        clock=WrongClock(hired.wrong_by) if hired and hired.wrong_by else None,
        notification_backend=Holdfast.notifications.RedisBackend(redis) if redis else None,
    )

    def begin() -> int:
        assert ledger is not None
        ledger.write("+", current().task_id, current().fence)
        return current().fence

    @app.durable(name="work", max_tries=TRIES, fenced=True)
    async def work(seconds: float) -> int:
        fence = begin()
        await asyncio.sleep(seconds)
        return fence

    @app.durable(name="thread", max_tries=TRIES, fenced=True)
    def thread(seconds: float) -> int:
        fence = begin()
        time.sleep(seconds)
        return fence

    @app.durable(name="limited", max_concurrent=4, max_tries=TRIES)
    async def limited(seconds: float) -> int:
        fence = begin()
        await asyncio.sleep(seconds)
        return fence

    @app.durable(name="keyed", max_concurrent=1, concurrency_key="key", max_tries=TRIES)
    async def keyed(seconds: float, key: int) -> int:
        fence = begin()
        await asyncio.sleep(seconds)
        return fence

    @app.durable(name="poison", max_tries=3)
    async def poison(how: str) -> None:
        begin()
        match how:
            case "exit":
                os._exit(3)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case _:
                os.kill(os.getpid(), signal.SIGKILL)

    @app.durable(name="good", max_tries=TRIES)
    async def good(seconds: float) -> int:
        fence = begin()
        await asyncio.sleep(seconds)
        return fence

    functions = (work, thread, limited, keyed, poison, good)
    return app, {function.name: function for function in functions}


async def _serve(hired: Hired) -> None:
    app, _ = build(hired, hired.url)
    async with app:
        lifecycle = app.create_worker_lifecycle(name=hired.name)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lifecycle.request_drain)
        await app.serve(
            lifecycle=lifecycle,
            max_concurrency=hired.slots,
            lease_duration=hired.lease,
            recovery_interval=hired.recovery,
            heartbeat_interval=hired.heartbeat,
            poll_interval=0.05,
            poll_interval_max=0.5,
            drain_timeout=hired.drain,
        )


def main(hired: Hired) -> None:
    logging.disable(logging.ERROR)
    asyncio.run(_serve(hired))
