"""What durable functions call: `Holdfast.step`, `Holdfast.sleep`, ... Each is written out for type
checkers; what they do stands in `holdfast.flow.verbs`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import UnionType
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, overload

from holdfast.flow import verbs
from holdfast.function import Function, Soon
from holdfast.tasks.durations import Duration

__all__ = ["Inside"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class Inside:
    """A part of `Holdfast`."""

    @overload
    @staticmethod
    def step(
        name: str, function: Function[P, Any, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Soon[R]: ...
    @overload
    @staticmethod
    def step(
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Soon[R]: ...
    @overload
    @staticmethod
    def step(
        name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Soon[R]: ...
    @staticmethod
    def step(name: str, function: Any, /, *args: Any, **kwargs: Any) -> Soon[Any]:
        """Run this here, and record its result: whatever happens afterwards, it never runs again.
        A sync function runs in a thread. Raises `StepFailed`."""
        return verbs.step(name, function, *args, **kwargs)

    @staticmethod
    def sleep(time: Duration) -> Soon[None]:
        """Sleep, for seconds or years: no worker is held meanwhile."""
        return verbs.sleep(time)

    @staticmethod
    def run(awaitable: Awaitable[R]) -> R:
        """In a sync durable function: block until this has come."""
        return verbs.run(awaitable)

    @staticmethod
    def timeout(time: Duration) -> asyncio.Timeout:
        """`asyncio.timeout` that also takes "2d": it outlives any restart."""
        return verbs.timeout(time)

    @overload
    @staticmethod
    def wait_for_signal(
        name: str, *, timeout: Duration | None = None, type: type[R]
    ) -> Soon[R]: ...
    @overload
    @staticmethod
    def wait_for_signal(
        name: str, *, timeout: Duration | None = None, type: UnionType = ...
    ) -> Soon[Any]: ...
    @staticmethod
    def wait_for_signal(
        name: str, *, timeout: Duration | None = None, type: Any = Any
    ) -> Soon[Any]:
        """The payload of the next signal of this name; `TimeoutError` where none comes in time."""
        return verbs.wait_for_signal(name, timeout=timeout, type=type)

    # As typeshed has asyncio.gather: results that are taken apart keep their types.
    @overload
    @staticmethod
    def gather(
        a: Awaitable[A], b: Awaitable[B], /, *, at_most: int | None = None
    ) -> Soon[tuple[A, B]]: ...
    @overload
    @staticmethod
    def gather(
        a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /, *, at_most: int | None = None
    ) -> Soon[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def gather(
        a: Awaitable[A],
        b: Awaitable[B],
        c: Awaitable[C],
        d: Awaitable[D],
        /,
        *,
        at_most: int | None = None,
    ) -> Soon[tuple[A, B, C, D]]: ...
    @overload
    @staticmethod
    def gather(
        *calls: Awaitable[R], at_most: int | None = None, return_exceptions: Literal[False] = False
    ) -> Soon[list[R]]: ...
    @overload
    @staticmethod
    def gather(
        *calls: Awaitable[R], at_most: int | None = None, return_exceptions: bool
    ) -> Soon[list[R | BaseException]]: ...
    @staticmethod
    def gather(*calls: Any, at_most: int | None = None, return_exceptions: bool = False) -> Any:
        """All results, in order: as `asyncio.gather`, and quicker for many durable calls. The
        first failure cancels the others, unless exceptions are wanted as results."""
        return verbs.gather(*calls, at_most=at_most, return_exceptions=return_exceptions)

    @overload
    @staticmethod
    def map(
        function: Function[..., Any, R],
        items: Iterable[Any],
        *,
        at_most: int | None = None,
        return_exceptions: Literal[False] = False,
    ) -> Soon[list[R]]: ...
    @overload
    @staticmethod
    def map(
        function: Function[..., Any, R],
        items: Iterable[Any],
        *,
        at_most: int | None = None,
        return_exceptions: bool,
    ) -> Soon[list[R | BaseException]]: ...
    @staticmethod
    def map(
        function: Function[..., Any, Any],
        items: Iterable[Any],
        *,
        at_most: int | None = None,
        return_exceptions: bool = False,
    ) -> Soon[list[Any]]:
        """A child task of `function` for each item, and all their results in order."""
        return verbs.map(function, items, at_most=at_most, return_exceptions=return_exceptions)

    @staticmethod
    def patched(name: str) -> bool:
        """Whether to take the new way: see `docs/howto/durable-functions.md`."""
        return verbs.patched(name)

    @staticmethod
    def continue_as_new(*args: Any, **kwargs: Any) -> Soon[NoReturn]:
        """Go on as a new run of the same task, with these arguments. Never returns."""
        return verbs.continue_as_new(*args, **kwargs)
