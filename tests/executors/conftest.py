"""The executors, each in the flavours of function that it takes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast.context import Context, running
from holdfast.executor import Executor
from holdfast.executors.coroutine import CoroutineExecutor
from holdfast.executors.process import ProcessExecutor
from holdfast.executors.thread import ThreadExecutor
from holdfast.function import Function
from tests.executors import functions

KEEPERS: dict[str, type[Executor]] = {
    "coroutine": CoroutineExecutor,
    "thread": ThreadExecutor,
    "process": ProcessExecutor,
}
WAYS = [("coroutine", "async"), ("thread", "sync"), ("process", "sync"), ("process", "async")]


class Way:
    """An executor, and functions for it."""

    def __init__(self, keeper: str, flavour: str) -> None:
        self.keeper, self.flavour = keeper, flavour
        self.executor = KEEPERS[keeper]()

    def __getattr__(self, name: str) -> Function[..., Any, Any]:
        found: Function[..., Any, Any] = getattr(functions, f"{self.flavour}_{name}")
        return found

    def start(self, function: Function[..., Any, Any], context: Context) -> "asyncio.Task[bytes]":
        """As a worker does: in a task of its own, where `current()` is known."""

        async def run() -> bytes:
            running.set(context)
            return await self.executor.run(function, context)

        return asyncio.get_running_loop().create_task(run())


@pytest_asyncio.fixture(
    params=WAYS, ids=["-".join(way) for way in WAYS], scope="module", loop_scope="module"
)
async def way(request: pytest.FixtureRequest) -> AsyncIterator[Way]:
    made = Way(*request.param)
    yield made
    await made.executor.close()
