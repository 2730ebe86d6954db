"""One attempt: from a lease to what follows from its end."""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any

from holdfast.context import Context
from holdfast.errors import HoldfastError
from holdfast.executor import Executor
from holdfast.registry import Function
from holdfast.store import Store
from holdfast.tasks.lifecycle import Facts, Outcome, Settlement, settle
from holdfast.tasks.task import Claimed

__all__ = ["Attempt", "Why"]


class Why(Enum):
    """Why an attempt is stopped from outside."""

    LOST = "its lease is lost"
    CANCEL = "somebody asked for it"
    TIMEOUT = "it ran out of time"
    DRAIN = "its worker drains"


class Attempt:
    """What is known of a running attempt. Keeps `holdfast.context.Keeper` for its function."""

    __slots__ = (
        "_store", "claimed", "context", "ended", "executor", "function", "started", "task", "timer",
        "why",
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
        self._store = store

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

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        raise HoldfastError("not there yet")
