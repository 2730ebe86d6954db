"""What a running function may know of its attempt and ask of it: `current()`."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable
from uuid import UUID, uuid5

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError, TaskCancelled
from holdfast.ids import chance, derived_id, new_uuid
from holdfast.redaction import scrub
from holdfast.sources import line_of
from holdfast.tasks.lifecycle import Outcome
from holdfast.tasks.names import check_key
from holdfast.tasks.payload import decode, encode
from holdfast.tasks.task import Claimed

__all__ = ["Asking", "Context", "Effect", "Keeper", "current", "entered", "here", "running"]

logger = logging.getLogger("holdfast.task")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Keeper(Protocol):
    """Carries out what an attempt asks for: in this process, from a thread, or from a child."""

    def progress(self, percent: float, message: str | None, saved: bytes | None) -> Awaitable[None]:
        """Raises `LeaseLost`."""
        ...

    def saved(self) -> Awaitable[bytes | None]: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    @property
    def flow(self) -> "Asking | None":
        """None where a function cannot ask for anything that is recorded."""
        ...

    @property
    def may_ask(self) -> bool:
        """Whether there is a flow, or would be one if it was asked for."""
        ...

    @property
    def has_asked(self) -> bool:
        """Whether it has asked for something that is recorded, in this attempt or before."""
        ...


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a function does once in its run, such as a dispatch: `base` is what its ids
    are derived from, the same if it is done again after a crash. `value`: what it came to.
    `done`: it was done, but what it came to is not recorded."""

    base: UUID
    value: bytes | None = None
    done: bool = False
    place: Any = None


@runtime_checkable
class Releasing(Protocol):
    """A keeper in the worker's own process, where an attempt can be ended before its time."""

    def release(self, outcome: Outcome) -> Awaitable[None]:
        """Raises `LeaseLost`."""
        ...


class Asking(Protocol):
    """The recorded calls of a durable function. Kept by `holdfast.flow`."""

    def child(self, call: Any) -> Coroutine[Any, Any, Any]: ...

    def join(
        self, calls: Iterable[Any], *, at_most: int | None, return_exceptions: bool
    ) -> Coroutine[Any, Any, list[Any]]: ...

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]: ...

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]: ...

    def signal(self, name: str, type: Any, timeout: float | None) -> Coroutine[Any, Any, Any]: ...

    def continue_as_new(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]: ...

    def value(self, kind: str, name: str, make: Callable[[], bytes]) -> bytes: ...

    def look(self, name: str, digest: str) -> Coroutine[Any, Any, "Effect"]:
        """What is known of something that is done in other tasks' lives, before it is done."""
        ...

    def note(self, effect: "Effect", value: bytes, *, decides: bool) -> Coroutine[Any, Any, None]:
        """It is done, and came to this. `decides`: it might have come to something else."""
        ...

    def carry_out(self, effect: Coroutine[Any, Any, bytes]) -> Coroutine[Any, Any, bytes]:
        """To its end, whatever becomes of whoever awaits it: what is half done would be done again,
        under another name, by the next attempt."""
        ...

    def patched(self, name: str) -> bool: ...

    def blocking(self) -> "Asking":
        """The same for a thread, where `run` blocks until an awaitable has come."""
        ...


class Context:
    """One attempt, seen from inside its function."""

    __slots__ = (
        "__weakref__", "_cancel_requested", "_outer", "_told", "claimed", "clock", "effects",
        "family", "keeper", "max_tries", "secrets", "watched", "worker_id",
    )  # fmt: skip

    def __init__(
        self,
        claimed: Claimed,
        keeper: Keeper,
        *,
        worker_id: str = "",
        max_tries: int = 3,
        clock: Clock | None = None,
        secrets: Callable[[], frozenset[str]] | None = None,
    ) -> None:
        """`secrets`: texts among its arguments that nobody should see."""
        self.claimed = claimed
        self.secrets = secrets
        self.keeper = keeper
        self.clock: Clock = clock or SystemClock()
        self.worker_id = worker_id
        self.max_tries = max_tries
        self.watched: Any = None  # the function's coroutine, where a flow may want to watch it
        self._cancel_requested = claimed.cancel_requested
        self._told: Callable[[], None] | None = None
        self._outer: Context | None = None  # the function, seen from one of its steps
        self.family: Any = None  # the asyncio tasks that it made: see `flow.branches`
        self.effects: dict[str, int] = {}  # by branch, how often `once` was asked without a flow

    def scrub(self, text: str) -> str:
        """What is said of this attempt, without the secrets among its arguments."""
        return scrub(text, self.secrets()) if self.secrets else text

    @property
    def flow(self) -> "Asking | None":
        """What the function asked for so far; None where it can ask for nothing."""
        return None if self._outer is not None else self.keeper.flow

    @property
    def may_ask(self) -> bool:
        """Whether there is a flow, or would be one if the function asked for something."""
        return not self._in_step and self.keeper.may_ask

    def inside_step(self) -> "Context":
        """The same attempt, for code that runs as a step: what it calls is not recorded."""
        inside = Context(
            self.claimed,
            self.keeper,
            worker_id=self.worker_id,
            max_tries=self.max_tries,
            clock=self.clock,
            secrets=self.secrets,
        )
        inside._outer = self
        return inside

    @property
    def _in_step(self) -> bool:
        return self._outer is not None

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked for this task to be cancelled."""
        if self._cancel_requested or self._outer is None:
            return self._cancel_requested
        return self._outer.cancel_requested

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
    def user_id(self) -> str | None:
        """For whom it runs, in the words of the application that asked for it."""
        return self.claimed.user_id

    @property
    def parent(self) -> UUID | None:
        return self.claimed.parent

    @property
    def root(self) -> UUID:
        """The topmost ancestor of this task; itself where it has none."""
        return self.claimed.root or self.claimed.parent or self.task_id

    @property
    def logger(self) -> logging.Logger:
        """Its records carry the task, once `install_structured_logging` was called."""
        return logger

    def effect_key(self, name: str) -> str:
        """The same in every attempt of this task: an idempotency key for a system outside."""
        return str(uuid5(self.task_id, check_key("effect key", name)))

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
        told = self.scrub(message) if isinstance(message, str) else message
        return self.keeper.progress(percent, told, data)

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
        if self._in_step:
            raise HoldfastError(
                "transaction() works in the function itself, not in a step: a step is recorded at "
                "once, its rows would be committed only when the function returns. Call it behind "
                "the last step, or write in the step over a connection of your own"
            )
        return self.keeper.transaction()

    def now(self, name: str = "") -> datetime:
        """The time, recorded with the next step or ask, and the same in every run from then on.
        It is known again by its `name`, or by the line of code that it stands in."""
        wall: int = decode(self._recorded("now", name, lambda: encode(self.clock.wall())), int)
        return _EPOCH + timedelta(microseconds=wall)

    def random(self, name: str = "") -> float:
        """A number from 0 to 1, recorded as `now` is."""
        found: float = decode(self._recorded("random", name, lambda: encode(chance())), float)
        return found

    def uuid(self, name: str = "") -> UUID:
        """A random id, recorded as `now` is."""
        found: UUID = decode(self._recorded("uuid", name, lambda: encode(new_uuid())), UUID)
        return found

    def _recorded(self, kind: str, name: str, make: Callable[[], bytes]) -> bytes:
        flow = self.flow
        if flow is None:
            return make()
        if name:
            return flow.value(kind, f"named {check_key(f'{kind} name', name)}"[:190], make)
        caller = sys._getframe(2)
        line = line_of(caller.f_code.co_filename, caller.f_lineno)
        return flow.value(kind, f"in {line}"[:150], make)

    async def once(
        self,
        name: str,
        digest: str,
        do: Callable[[UUID | None], Awaitable[bytes]],
        derive: Callable[[UUID], bytes] | None = None,
    ) -> bytes:
        """Do this once in a run: in a durable function it is recorded; else what is done again
        after a crash is given the same ids, and after an end of any other kind new ones. In a
        step it is done each time. `derive`: its value, where it is only known that it was done.
        """
        if not self._in_step and self.keeper.has_asked and (flow := self.flow):
            effect = await flow.look(name, digest)
            if effect.value is not None:
                return effect.value
            surely = derive(effect.base) if derive else None

            async def done_and_noted() -> bytes:
                value = surely if surely and effect.done else await do(effect.base)
                await flow.note(effect, value, decides=value != surely)
                return value

            return await flow.carry_out(done_and_noted())
        return await do(self._base(digest))

    @property
    def since(self) -> int:
        """The first fence of this run, as far as it was only lost since then; 0: not known."""
        return self.claimed.since or (self.fence if self.fence == 1 else 0)

    def _base(self, digest: str) -> UUID | None:
        if self._in_step or not self.since:
            return None
        branch = here.get()
        path = branch.path if branch else ""
        number = self.effects[path] = self.effects.get(path, -1) + 1
        return derived_id(self.task_id, self.since, path, number, digest)

    async def release(self, outcome: Outcome) -> None:
        """End the attempt now, in this way. What the function does from here on counts no more.
        Raises `LeaseLost`."""
        if not isinstance(self.keeper, Releasing):
            raise HoldfastError("this attempt cannot be released; return or raise instead")
        await self.keeper.release(outcome)


def _finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The value of a coroutine that never has to wait, as all do over a blocking keeper."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise HoldfastError("saved_sync() works in sync functions that run as tasks")


here: ContextVar[Any] = ContextVar("holdfast_branch", default=None)  # see `flow.branches`
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
