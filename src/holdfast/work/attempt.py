"""One attempt: from a lease to what follows from its end."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, assert_never

from holdfast.context import Context
from holdfast.errors import LeaseLost
from holdfast.executor import Executor
from holdfast.executors.outcomes import outcome_of
from holdfast.function import Function
from holdfast.store import Store
from holdfast.tasks.lifecycle import (
    Cancelled,
    Errored,
    Facts,
    HandedBack,
    Outcome,
    Settlement,
    done,
    settle,
)
from holdfast.tasks.task import Claimed, Failure
from holdfast.work.holding import Holding
from holdfast.work.transaction import Transaction

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
        "_holding", "_released", "_store", "_transaction", "claimed", "committed", "context",
        "ended", "executor", "function", "started", "task", "timer", "why",
    )  # fmt: skip

    def __init__(
        self,
        claimed: Claimed,
        function: Function[..., Any, Any],
        executor: Executor,
        store: Store,
        holding: Holding,
        *,
        worker_id: str,
        default_tries: int,
        started: int,
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
        self.ended = self.committed = False
        self._store, self._holding, self._released = store, holding, released
        self._transaction: Transaction | None = None

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
        if self.ended or (self._transaction and self._transaction.is_open):
            raise LeaseLost("release", lease.task, [lease])
        self.ended = True
        try:
            with self._holding.at_rest([lease]):
                refused = await self._store.settle(
                    [(lease, settlement)], default_tries=self.context.max_tries
                )
        except BaseException:
            self.ended = False  # it may have been written: settling it once more is harmless
            raise
        if refused:
            self._holding.drop([lease])
            raise LeaseLost("release", lease.task, [lease])
        if self._released:
            self._released(self, settlement)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        if self._transaction is None:
            self._transaction = Transaction(self._store, self.claimed.lease, self._holding)
        return self._transaction.begin()

    # ── from its start to its end ────────────────────────────────────────────────────────────

    async def run(self) -> Settlement | None:
        """What follows from it; None: write nothing (more). Whatever the function raises ends its
        attempt, and nothing else."""
        try:
            result = await self.executor.run(self.function, self.context)
            if self.why in (Why.LOST, Why.TIMEOUT):
                raise asyncio.CancelledError  # it went on in spite of it: too late
            settlement = done(result)
            if self._transaction is None or not self._transaction.is_open:
                return settlement
            self.committed = await self._transaction.commit(settlement)
            return settlement if self.committed else None
        except BaseException as error:
            if self._transaction is not None:
                await self._transaction.roll_back(error)
            return self._after(error)

    def _after(self, error: BaseException) -> Settlement | None:
        """What follows from what was raised: by the function, or by stopping it."""
        if self.why in (Why.LOST, Why.TIMEOUT, Why.DRAIN):
            return self.after_stop()
        if isinstance(error, asyncio.CancelledError) and self.why:
            return self.after_stop()  # else it cancelled itself, which is an error like others
        return self.settle(outcome_of(error, self.function, self.context))

    def after_stop(self) -> Settlement | None:
        """What follows from having been stopped; None: write nothing."""
        match self.why:
            case Why.LOST:
                return None
            case Why.CANCEL:
                return self.settle(Cancelled())
            case Why.TIMEOUT:
                seconds = self.function.traits.timeout
                failure = Failure(type="TimeoutError", message=f"it ran longer than {seconds}")
                return self.settle(Errored(failure))
            case Why.DRAIN | None:
                return self.settle(HandedBack())
            case _:
                assert_never(self.why)
