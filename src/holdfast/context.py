"""What a running function may know of its attempt and ask of it: `current()`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable
from uuid import UUID, uuid5

from holdfast.errors import HoldfastError, TaskCancelled
from holdfast.tasks.lifecycle import Outcome
from holdfast.tasks.payload import decode, encode
from holdfast.tasks.task import Claimed

__all__ = ["Context", "Keeper", "current", "entered", "running"]

logger = logging.getLogger("holdfast.task")


class Keeper(Protocol):
    """Carries out what an attempt asks for: in this process, from a thread, or from a child."""

    def progress(self, percent: float, message: str | None, saved: bytes | None) -> Awaitable[None]:
        """Raises `LeaseLost`."""
        ...

    def saved(self) -> Awaitable[bytes | None]: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...


@runtime_checkable
class Releasing(Protocol):
    """A keeper in the worker's own process, where an attempt can be ended before its time."""

    def release(self, outcome: Outcome) -> Awaitable[None]:
        """Raises `LeaseLost`."""
        ...


class Context:
    """One attempt, seen from inside its function."""

    __slots__ = ("_cancel_requested", "_told", "claimed", "keeper", "max_tries", "worker_id")

    def __init__(
        self, claimed: Claimed, keeper: Keeper, *, worker_id: str = "", max_tries: int = 3
    ) -> None:
        self.claimed = claimed
        self.keeper = keeper
        self.worker_id = worker_id
        self.max_tries = max_tries
        self._cancel_requested = claimed.cancel_requested
        self._told: Callable[[], None] | None = None

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked for this task to be cancelled."""
        return self._cancel_requested

    @cancel_requested.setter
    def cancel_requested(self, requested: bool) -> None:
        self._cancel_requested = requested
        if requested and self._told:
            self._told()

    def when_cancelled(self, tell: Callable[[], None] | None) -> None:
        """Call this once somebody asks; for executors, whose functions see another context."""
        self._told = tell
        if tell and self._cancel_requested:
            tell()

    @property
    def task_id(self) -> UUID:
        return self.claimed.lease.task

    @property
    def fence(self) -> int:
        """Only ever grows for a task: hand it to systems outside that can refuse older ones."""
        return self.claimed.lease.fence

    @property
    def attempt(self) -> int:
        """Which try this is, from 1 on."""
        return self.claimed.tries

    @property
    def type(self) -> str:
        return self.claimed.lane.type

    @property
    def queue(self) -> str:
        return self.claimed.lane.queue

    @property
    def tenant(self) -> str:
        return self.claimed.lane.tenant

    @property
    def parent(self) -> UUID | None:
        return self.claimed.parent

    @property
    def logger(self) -> logging.Logger:
        """Its records carry the task, once `install_structured_logging` was called."""
        return logger

    def effect_key(self, name: str) -> str:
        """The same in every attempt of this task: an idempotency key for a system outside."""
        return str(uuid5(self.task_id, name))

    def check_cancelled(self) -> None:
        """Raise `TaskCancelled` where somebody asked for it; call it now and then in long loops."""
        if self.cancel_requested:
            raise TaskCancelled(self.task_id)

    def progress(
        self, percent: float, message: str | None = None, *, save: Any = None
    ) -> Awaitable[None]:
        """Report how far the work is. What is saved outlives the attempt: see `saved`.

        In a coroutine it is awaited; in a sync function it is written when the call returns.
        """
        data = None if save is None else encode(save)
        return self.keeper.progress(percent, message, data)

    async def saved(self, type: Any = Any) -> Any:
        """What the last `progress(save=...)` of any attempt of this task saved, or None."""
        data = await self.keeper.saved()
        return None if data is None else decode(data, type)

    def saved_sync(self, type: Any = Any) -> Any:
        """`saved` for sync functions: in a thread or a process of their own."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _finished(self.saved(type))
        raise HoldfastError("await current().saved() in a coroutine; saved_sync would block it")

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """PostgreSQL: a connection whose transaction also ends the task. It is committed when the
        function returns, together with its result; rolled back when it raises or lost its lease.
        """
        return self.keeper.transaction()

    async def release(self, outcome: Outcome) -> None:
        """End the attempt now, in this way. What the function does from here on counts no more.
        Raises `LeaseLost`."""
        if not isinstance(self.keeper, Releasing):
            raise HoldfastError(
                "a lease cannot be released from a process of its own; return or raise instead"
            )
        await self.keeper.release(outcome)


def _finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The value of a coroutine that never has to wait, as all do over a blocking keeper."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise HoldfastError("saved_sync() works in sync functions that run as tasks")


running: ContextVar[Context | None] = ContextVar("holdfast_attempt", default=None)


def entered() -> Context | None:
    """The attempt that this code runs in; None outside of one."""
    return running.get()


def current() -> Context:
    """The attempt that this code runs in."""
    context = running.get()
    if context is None:
        raise HoldfastError("there is no task here: current() works inside a durable function")
    return context
