"""Where a worker is in its life, for those who wait for it or ask after its health."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from holdfast.errors import HoldfastError

__all__ = ["WorkerLifecycle", "WorkerState"]


class WorkerState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class WorkerLifecycle:
    """One worker's life: starting, ready, draining, stopped. Made before `serve`, handed to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = WorkerState.STARTING
        self.drain_requested = False
        self.probes: int | None = None  # the port where health is told
        self.failure: BaseException | None = None  # with which `serve` ended
        self._facts: Callable[[], dict[str, Any]] = dict
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def __repr__(self) -> str:
        return f"<WorkerLifecycle {self.name} {self.state}>"

    def follow(self, facts: Callable[[], dict[str, Any]]) -> None:
        """What the worker says of itself, from now on."""
        self._facts = facts

    def overview(self) -> dict[str, Any]:
        return {"name": self.name, "state": str(self.state), **self._facts()}

    def move(self, state: WorkerState) -> None:
        self.state = state
        self._tell()

    def request_drain(self) -> None:
        """Ask the worker to claim nothing more, finish or hand back what it holds, and end. May be
        called from any thread."""
        self.drain_requested = True
        self._tell()

    async def wait_until_ready(self) -> None:
        """Raises where the worker failed before it was ready, and says why. Returns also where it
        was drained before: look at `state`."""
        await self._until(lambda: self.state is not WorkerState.STARTING)
        if self.state is WorkerState.STOPPED and (error := self.failure):
            raise HoldfastError(
                f"worker {self.name} stopped before it was ready: {type(error).__name__}: {error}"
            ) from error

    async def wait_until_stopped(self) -> None:
        await self._until(lambda: self.state is WorkerState.STOPPED)

    async def wait_until_drain(self) -> None:
        await self._until(lambda: self.drain_requested)

    async def _until(self, reached: Callable[[], bool]) -> None:
        mine = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.append(mine)
        try:
            while not reached():
                mine[1].clear()
                if not reached():
                    await mine[1].wait()
        finally:
            self._waiting.remove(mine)

    def _tell(self) -> None:
        for loop, event in list(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
