"""One attempt: from a lease to what follows from its end."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import Enum
from typing import Any

from holdfast.context import Context
from holdfast.errors import HoldfastError, LeaseLost, StoreError
from holdfast.executor import Executor
from holdfast.registry import Function
from holdfast.store import Store
from holdfast.tasks.lifecycle import Facts, Outcome, Settlement, settle
from holdfast.tasks.task import Claimed

__all__ = ["Attempt", "Why"]

logger = logging.getLogger("holdfast.worker")


class Why(Enum):
    """Why an attempt is stopped from outside."""

    LOST = "its lease is lost"
    CANCEL = "somebody asked for it"
    TIMEOUT = "it ran out of time"
    DRAIN = "its worker drains"


class Attempt:
    """What is known of a running attempt. Keeps `holdfast.context.Keeper` for its function."""

    __slots__ = (
        "_conn", "_open", "_released", "_store", "claimed", "context", "ended", "executor",
        "function", "started", "task", "timer", "why",
    )  # fmt: skip

    def __init__(
        self,
        claimed: Claimed,
        function: Function[..., Any, Any],
        executor: Executor,
        store: Store,
        *,
        worker_id: str,
        default_tries: int,
        started: float,
        released: "Callable[[Attempt, Settlement], None] | None" = None,
    ) -> None:
        self.claimed, self.function, self.executor = claimed, function, executor
        self.context = Context(
            claimed, self, worker_id=worker_id, max_tries=claimed.max_tries or default_tries
        )
        self.started = started
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.why: Why | None = None
        self.ended = False
        self._store, self._released = store, released
        self._open: AsyncExitStack | None = None
        self._conn: Any = None

    @property
    def in_transaction(self) -> bool:
        return self._open is not None

    def settle(self, outcome: Outcome) -> Settlement:
        claimed = self.claimed
        facts = Facts(
            tries=claimed.tries,
            max_tries=self.context.max_tries,
            retry=claimed.retry or self.function.traits.retry_policy,
            alone=claimed.alone,
            cancel_requested=self.context.cancel_requested,
            expired=claimed.expired,
        )
        return settle(facts, outcome, random.random())

    def stop(self, why: Why) -> None:
        """The first reason counts."""
        if self.why is None:
            self.why = why
            if self.task:
                self.task.cancel()

    def progress(self, percent: float, message: str | None, saved: bytes | None) -> Awaitable[None]:
        return self._store.progress(self.claimed.lease, percent, message, saved)

    async def saved(self) -> bytes | None:
        progress = await self._store.saved(self.claimed.lease.task)
        return progress.saved if progress else None

    async def release(self, outcome: Outcome) -> None:
        """End the attempt before its function has returned."""
        lease, settlement = self.claimed.lease, self.settle(outcome)
        if self.ended or self.in_transaction:
            raise LeaseLost("release", lease.task, [lease])
        self.ended = True
        try:
            refused = await self._store.settle(
                [(lease, settlement)], default_tries=self.context.max_tries
            )
        except BaseException:
            self.ended = False  # it may have been written: settling it once more is harmless
            raise
        if refused:
            raise LeaseLost("release", lease.task, [lease])
        if self._released:
            self._released(self, settlement)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        if self._store.one_writer:
            raise HoldfastError(
                "current().transaction() needs PostgreSQL: on SQLite it would keep everybody else "
                "from writing while the function runs"
            )
        if self._open is not None:
            raise HoldfastError("a task has one transaction: the one that ends it")
        async with AsyncExitStack() as stack:
            self._conn = await stack.enter_async_context(self._store.transaction())
            yield self._conn
            self._open = stack.pop_all()  # until the function returns, or raises

    async def commit(self, settlement: Settlement) -> bool:
        """End the task in the function's own transaction. False: the lease is lost, or nobody
        knows whether it was committed; then nothing more may be written."""
        assert self._open is not None
        stack, self._open = self._open, None
        try:
            async with stack:
                await self._store.settle([(self.claimed.lease, settlement)], conn=self._conn)
        except LeaseLost:
            logger.warning("task %s: its lease is lost, all is rolled back", self.context.task_id)
            return False
        except StoreError as error:
            logger.warning(
                "task %s: its commit was not heard of (%s); it runs again if there was none",
                self.context.task_id,
                error,
            )
            return False
        return True

    async def roll_back(self, error: BaseException) -> None:
        if self._open is not None:
            stack, self._open = self._open, None
            with suppress(HoldfastError):
                await stack.__aexit__(type(error), error, error.__traceback__)
