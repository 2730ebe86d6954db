"""A worker that is cut off at one of its calls, and another that goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, TaskHandle, current
from tests.flow.doomed import Doomed
from tests.storm.ledger import peek
from tests.work.bench import Bench

__all__ = ["BOTH_SIDES", "Crashing"]

# Cut off before a call is made, or after it, before it is answered.
BOTH_SIDES = pytest.mark.parametrize(
    "after", [pytest.param(False, marks=pytest.mark.long), True], ids=["before", "after"]
)


async def _result(task: TaskHandle[Any]) -> Any:
    return await task.result(timeout=60)


class Crashing:
    """`victim` and `rescuer` know the same functions; `doomed` is the victim's store."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.victim, self.rescuer = bench.app, bench.new_app()
        self.doomed: Doomed | None = None

    def register(self, functions: Callable[[Holdfast], Any]) -> Any:
        functions(self.rescuer)
        return functions(self.victim)

    def check_alive(self) -> None:
        """A process that was killed has no effects."""
        if self.doomed and self.doomed.dead and current().worker_id == "victim":
            raise RuntimeError("it is dead")

    async def run(
        self,
        fatal: int,
        start: Callable[[], Awaitable[TaskHandle[Any]]],
        *,
        after: bool,
        result: Callable[[TaskHandle[Any]], Awaitable[Any]] = _result,
    ) -> tuple[TaskHandle[Any], Any]:
        """The task and its result: the victim dies at its call number `fatal`, if it comes to it;
        the rescuer brings the function to its end."""
        client = await self.victim.home.client()
        store = client.store
        doomed = self.doomed = Doomed(store, fatal, after=after)
        task = await start()
        client.store = doomed
        working, lifecycle = await self.bench.start(
            self.victim, worker_id="victim", drain_timeout=0.0, queues=["default"]
        )
        died = asyncio.create_task(doomed.died.wait())
        ended = asyncio.create_task(self.rescuer.wait_for(task))
        await asyncio.wait({died, ended}, return_when=asyncio.FIRST_COMPLETED)
        lifecycle.request_drain()
        await working
        client.store = store
        self._lapse_all()
        async with self.bench.worker(self.rescuer, worker_id="rescuer", queues=["default"]):
            found = await result(task)
        died.cancel()
        await asyncio.wait({ended, died})
        return task, found

    def _lapse_all(self) -> None:
        for (id,) in peek(self.bench.place, "select id from {s}lease"):
            self.bench.lapse(UUID(bytes=id) if isinstance(id, bytes) else UUID(str(id)))
