"""What durable functions call: `Holdfast.step`, `sleep`, `wait_for_signal`, `gather`, `map`, ..."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from inspect import isawaitable, iscoroutine
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

from holdfast.context import Asking, running
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.flow.asking import Child
from holdfast.flow.blocking import Blocking
from holdfast.function import Call, Function
from holdfast.tasks.durations import Duration, duration
from holdfast.tasks.names import check_key

__all__ = [
    "continue_as_new",
    "gather",
    "map",
    "patched",
    "run",
    "sleep",
    "step",
    "timeout",
    "wait_for_signal",
]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(
    name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...


@overload
def step(
    name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...


def step(
    name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Coroutine[Any, Any, Any]:
    """Run this here, and record its result: whatever happens afterwards, it never runs again. A
    sync function runs in a thread. Raises `StepFailed`."""
    if isinstance(function, Function):
        function = function.function
    if not callable(function):
        if iscoroutine(function):
            function.close()
        raise InvalidInput(
            f'step takes a name, a function and its arguments, as step("pay", pay, 7); got '
            f"{type(function).__name__} instead of a function"
        )
    return _flow("step").step(name, function, args, kwargs)


def run(awaitable: Awaitable[R]) -> R:
    """In a sync durable function: block until this has come. `Holdfast.run(charge(7))`,
    `Holdfast.run(Holdfast.sleep("1h"))`."""
    flow = _flow("run")
    if not isinstance(flow, Blocking):
        raise HoldfastError("run() is for sync functions: await it, this is a coroutine")
    found: R = flow.run(awaitable)
    return found


def sleep(time: Duration) -> Coroutine[Any, Any, None]:
    """Sleep, for seconds or years: no worker is held meanwhile."""
    return _flow("sleep").sleep(duration("sleep", time).total_seconds())


def timeout(time: Duration) -> asyncio.Timeout:
    """`asyncio.timeout` that also takes "2d": in a durable function it outlives any restart."""
    return asyncio.timeout(duration("timeout", time).total_seconds())


def wait_for_signal(
    name: str, *, timeout: Duration | None = None, type: Any = Any
) -> Coroutine[Any, Any, Any]:
    """The payload of the next signal of this name; `TimeoutError` where none comes in time."""
    seconds = None if timeout is None else duration("timeout", timeout).total_seconds()
    return _flow("wait_for_signal").signal(name, type, seconds)


async def gather(
    *calls: Awaitable[Any], at_most: int | None = None, return_exceptions: bool = False
) -> list[Any]:
    """All results, in order: as `asyncio.gather`, and quicker for many calls of durable functions.
    The first failure cancels the others, unless exceptions are wanted as results."""
    made = [call.call if isinstance(call, Child) else call for call in calls]
    if all(isinstance(call, Call) for call in made):
        for call in calls:
            if isinstance(call, Child):
                call.close()
        return await _flow("gather").join(
            made, at_most=at_most, return_exceptions=return_exceptions
        )
    for call in calls:
        if not isawaitable(call):
            raise InvalidInput(
                f"gather takes calls, one after the other, as gather(f(1), f(2)) or "
                f"gather(*calls); got {type(call).__name__} (of sync functions: f.call(1))"
            )
    if at_most is not None:
        raise InvalidInput("at_most= is for calls of durable functions, such as gather(f(1), f(2))")
    return list(await asyncio.gather(*calls, return_exceptions=return_exceptions))


def map(
    function: Function[..., Any, R],
    items: Iterable[Any],
    *,
    at_most: int | None = None,
    return_exceptions: bool = False,
) -> Coroutine[Any, Any, list[R]]:
    """A child task of `function` for each item, and all their results in order."""
    if not isinstance(function, Function):
        raise InvalidInput(
            "map takes a durable function and the arguments for it, as map(charge, [1, 2]); got "
            f"{type(function).__name__}"
        )
    return function.map(items, at_most=at_most, return_exceptions=return_exceptions)


def continue_as_new(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, NoReturn]:
    """For functions without an end: go on as a new run of the same task, with these arguments and
    an empty journal. Signals that were not consumed stay. Never returns."""
    return _flow("continue_as_new").continue_as_new(args, kwargs)


def patched(name: str) -> bool:
    """Whether to take the new way: True for runs that come here for the first time, False for
    those that passed here before this line was added."""
    return _flow("patched").patched(check_key("name of a patch", name))


def _flow(what: str) -> Asking:
    attempt = running.get()
    if attempt is None:
        raise HoldfastError(f"{what} works inside a durable function, in a worker")
    flow = attempt.flow
    if flow is None:
        raise HoldfastError(
            f"{what} works in a durable function itself: not inside a step, nor in a process of "
            "its own"
        )
    return flow
