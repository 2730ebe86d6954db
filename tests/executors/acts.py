"""Attempts made by hand, and a keeper that remembers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from holdfast.context import Context
from holdfast.function import Function
from holdfast.ids import new_grant, new_id
from holdfast.tasks.lane import Lane
from holdfast.tasks.task import Claimed, Lease

PATIENCE = 60.0


class MemoryKeeper:
    """Keeps reports in a list; `refuse` is raised instead."""

    flow = None
    has_asked = may_ask = False

    def __init__(self, saved: bytes | None = None) -> None:
        self.reports: list[tuple[float, str | None, bytes | None]] = []
        self.kept = saved
        self.refuse: Exception | None = None
        self.reported = asyncio.Event()

    async def progress(self, percent: float, message: str | None, saved: bytes | None) -> None:
        await asyncio.sleep(0)
        if self.refuse:
            raise self.refuse
        self.reports.append((percent, message, saved))
        self.kept = saved or self.kept
        self.reported.set()

    async def saved(self) -> bytes | None:
        return self.kept

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        raise AssertionError("nobody asks for it here")


def attempt(
    function: Function[..., Any, Any],
    *args: Any,
    keeper: MemoryKeeper | None = None,
    cancel_requested: bool = False,
    payload: bytes | None = None,
    **kwargs: Any,
) -> Context:
    """A context as a worker makes it for a claimed task."""
    claimed = Claimed(
        lease=Lease(new_id(), new_grant(), 7),
        lane=Lane(queue="mail", type=function.name, tenant="acme"),
        priority=0,
        tries=2,
        payload=function.signature.pack(args, kwargs) if payload is None else payload,
        cancel_requested=cancel_requested,
    )
    return Context(claimed, keeper or MemoryKeeper(), worker_id="worker-1", max_tries=5)


async def soon(condition: Callable[[], Any]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


async def within(awaitable: Awaitable[Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await awaitable
