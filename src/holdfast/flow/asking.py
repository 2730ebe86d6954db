"""What durable functions ask for: children, steps, sleep, signals, joins."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import copy_context
from functools import lru_cache, partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from holdfast.answers import Ending
from holdfast.client import result_of
from holdfast.context import Context, running
from holdfast.errors import HoldfastError, InvalidInput, PayloadRefused, StepFailed
from holdfast.executors.failures import failure_of
from holdfast.executors.outcomes import meaning_of
from holdfast.executors.thread import ThreadKeeper
from holdfast.flow.asks import Ask, Join
from holdfast.flow.blocking import Blocking
from holdfast.flow.entries import Key, One, Recorded, digest_of
from holdfast.flow.flow import Flow
from holdfast.function import Call
from holdfast.tasks.names import check_key
from holdfast.tasks.payload import decode, encode
from holdfast.tasks.signature import Signature
from holdfast.tasks.task import Failure, TaskStatus

__all__ = ["Asking", "Child"]

logger = logging.getLogger("holdfast.flow")


class Child(Coroutine[Any, Any, Any]):
    """A call of a durable function inside another: a coroutine that asks for a child task."""

    __slots__ = ("__name__", "__qualname__", "_coroutine", "_is_closed", "call", "flow")

    def __init__(self, flow: "Asking", call: Call[Any]) -> None:
        self.flow, self.call = flow, call
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        self._is_closed = False
        self.__name__ = self.__qualname__ = call.function.name

    def _begun(self) -> Coroutine[Any, Any, Any]:
        if self._coroutine is None:
            self._coroutine = self.flow.run_child(self.call)
        return self._coroutine

    def __await__(self) -> Any:
        return self._begun().__await__()

    def send(self, value: Any, /) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        self._is_closed = True
        if self._coroutine:
            self._coroutine.close()

    def __del__(self) -> None:
        if self._coroutine is None and not self._is_closed:
            logger.warning("a call of %s was never awaited: nothing was done", self.__name__)


class Asking(Flow):
    """Keeps `holdfast.context.Asking`."""

    def child(self, call: Call[Any]) -> Child:
        return Child(self, call)

    def blocking(self) -> Blocking:
        return Blocking(self)

    async def run_child(self, call: Call[Any]) -> Any:
        if self.closed:
            await self.check_open()
        ask = self._ask_one(call)
        return self._end_of(ask, call, await self.begin(ask))

    async def join(
        self, calls: Iterable[Call[Any]], *, at_most: int | None, return_exceptions: bool
    ) -> list[Any]:
        """The results of all of them, in their order; or the first failure, and the others are
        cancelled."""
        made = list(calls)
        if at_most is not None and (type(at_most) is not int or at_most < 1):
            raise InvalidInput(f"at_most must be a whole number from 1 on, got {at_most!r:.80}")
        if at_most is not None and at_most < len(made):
            return await self._join_some(made, at_most, return_exceptions)
        await self.check_open()
        join = Join(self, waits_for_all=return_exceptions)
        for call in made:
            join.add(self._ask_child(call))
        for ask in join.asks:
            self.begin(ask)
        if made:
            await join
        return self._ends_of(join.asks, made, return_exceptions)

    async def _join_some(
        self, calls: Sequence[Call[Any]], at_most: int, return_exceptions: bool
    ) -> list[Any]:
        await self.check_open()
        asks = [self._ask_child(call) for call in calls]
        waiting, running_ = iter(asks), set[Ask]()
        try:
            while True:
                while len(running_) < at_most and (ask := next(waiting, None)):
                    running_.add(self.begin(ask))
                if not running_:
                    return self._ends_of(asks, calls, return_exceptions)
                done, running_ = await asyncio.wait(running_, return_when=asyncio.FIRST_COMPLETED)
                if not return_exceptions and any(a.result().how != "done" for a in done):
                    return self._ends_of(asks, calls, return_exceptions)
        finally:
            for one in running_:
                one.give_up()

    def _ask_one(self, call: Call[Any]) -> Ask:
        """One by itself: its id follows from what it is known by."""
        ask = self._ask_child(call)
        assert ask.draft is not None
        force_setattr(ask.draft, "id", self.id_of(ask.key))  # nobody has seen it yet
        # One that tells others its fence is never lost: no other run may have the same.
        ask.may_be_lost = not call.function.traits.fenced
        return ask

    def _ask_child(self, call: Call[Any]) -> Ask:
        draft = call.draft(self.context.claimed)
        ask = self.ask("child", draft.type, digest_of([draft.payload.decode()], {}))
        ask.draft = draft
        ask.untold = draft.key is not None and not call.function.traits.shares
        if draft.type == self.context.claimed.lane.type:
            limit = call.function.traits.limit
            ask.in_the_way = limit is not None and bool(limit.max_running or limit.max_per_key)
        return ask

    def _end_of(self, ask: Ask, call: Call[Any], one: One) -> Any:
        end = Ending(
            status=TaskStatus(one.how),
            result=bytes(one.result),
            failure=one.failure,
        )
        try:
            return result_of(ask.task or self._lease.task, end, call.function)
        except HoldfastError as error:
            raise self.raises(error, ask) from None

    def _ends_of(
        self, asks: Sequence[Ask], calls: Sequence[Call[Any]], return_exceptions: bool
    ) -> list[Any]:
        ends: list[Any] = []
        failure: BaseException | None = None
        for ask, call in zip(asks, calls, strict=True):
            if not ask.done() or ask.cancelled():
                continue
            try:
                ends.append(self._end_of(ask, call, ask.result()))
            except HoldfastError as error:
                ends.append(error)
                failure = failure or error
        if failure is None or return_exceptions:
            return ends
        for ask in asks:
            ask.cancel()
        raise failure

    async def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run it here, once; afterwards its result is known."""
        check_key("step name", name)
        if self.closed:
            await self.check_open()
        digest, told = digest_of(args, kwargs), f"step {name}"[:200]
        makeup = _makeup(function)
        errors: list[BaseException] = []

        async def run(key: Key) -> Recorded:
            inside = self.context.inside_step()
            token = running.set(inside)
            try:
                if makeup.is_async:
                    value = await function(*args, **kwargs)
                else:
                    value = await self._in_thread(partial(function, *args, **kwargs), inside)
                return Recorded(key, msgspec.Raw(encode(value)))
            except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_stopped():
                    raise
                errors.append(error)
                meaning = meaning_of(error, self._host.function)
                return Recorded(key, failure=failure_of(error), meaning=meaning)
            finally:
                running.reset(token)

        one: Recorded | One
        ask: Ask | None
        if self.can_run_here():
            one, ask = await self.run_here(told, digest, run)
        else:
            ask = self.ask("step", told, digest)
            ask.run, ask.lasts, ask.variables = run, not makeup.is_async, copy_context()
            one = await self.begin(ask)
        if one.failure is not None and ask is not None:
            failed = StepFailed(name, one.failure.type, one.failure.message, *errors)
            failed.traceback = one.failure.traceback
            failed.failure, failed.meaning = one.failure, one.meaning
            raise self.raises(failed, ask)
        # As its annotation says: the same when it ran just now and when it is replayed.
        try:
            return decode(bytes(one.result), makeup.returns)
        except PayloadRefused as error:
            raise PayloadRefused(
                f"step {name!r} ran, but its result does not fit what its function says that it "
                f"returns: {error}; correct the annotation or the function"
            ) from None

    async def _in_thread(self, call: partial[Any], inside: Context) -> Any:
        """Sync functions may block. One that cannot be stopped is told."""
        variables = copy_context()
        inside.keeper = keeper = ThreadKeeper(inside.keeper, inside)

        def stopped() -> None:
            keeper.stopped = inside.cancel_requested = True

        value, error = await self._host.in_thread(lambda: variables.run(call), stopped)
        if error is not None:
            raise error
        return await value if isawaitable(value) else value

    async def sleep(self, seconds: float) -> None:
        await self.check_open()
        ask = self.ask("sleep", "sleep")
        ask.seconds = seconds
        self._history.sleeps(ask.key, seconds)
        await self.begin(ask)

    async def signal(self, name: str, type: Any, timeout: float | None) -> Any:
        check_key("signal name", name)
        await self.check_open()
        ask = self.ask("signal", f"signal {name}"[:200])
        ask.signal, ask.seconds = name, timeout
        ask.refuses = partial(_refused, name, type)
        one = await self.begin(ask)
        self.heard(one)
        if one.how == "due":
            raise self.raises(TimeoutError(f"no signal {name!r} within {timeout:g} s"), ask)
        if one.failure is not None:
            raise self.raises(PayloadRefused(one.failure.message), ask)
        try:
            return decode(bytes(one.result), type)
        except PayloadRefused as error:  # it fitted when it came
            raise PayloadRefused(
                f"{_unfit(name, error)}; it was heard before: correct its type="
            ) from None

    async def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """End this run and begin the next, of the same task; never returns."""
        payload = self._host.function.signature.pack(args, kwargs)
        await self.start_anew(payload)


def _unfit(name: str, error: Exception) -> str:
    return f"signal {name!r} brought what does not fit: {error}"


def _refused(name: str, type: Any, said: bytes) -> Failure | None:
    """Recorded with what came: whoever hears of it again is told the same."""
    try:
        decode(said, type)
    except Exception as error:
        used_up = "it is used up: retry the task, then send one that fits"
        return failure_of(PayloadRefused(f"{_unfit(name, error)}; {used_up}"))
    return None


def _is_stopped() -> bool:
    """Whether whoever runs here was cancelled: else somebody else was, and it heard of it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Makeup(NamedTuple):
    """Of a function that runs as a step."""

    is_async: bool
    returns: Any

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Makeup":
        is_async = iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)
        try:
            return cls(is_async, Signature(function).returns)
        except (TypeError, ValueError):  # builtins have no signature
            return cls(is_async, Any)


_known = lru_cache(1024, typed=True)(_Makeup.of)  # equal ones of two kinds are two


def _makeup(function: Callable[..., Any]) -> _Makeup:
    try:
        return _known(function)
    except TypeError:  # cannot be hashed
        return _Makeup.of(function)
