"""A coroutine that tells when it takes a step, and what it waits for."""

from asyncio import CancelledError
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

__all__ = ["Watched", "Watcher"]

_NOTHING = object()


class Watcher(Protocol):
    """Of one coroutine: whether it has to wait for something else first, which is a future; it is
    about to take a step; it waits again; it has ended."""

    def held(self) -> Any: ...
    def moves(self) -> None: ...
    def rests(self) -> None: ...
    def ends(self) -> None: ...


class Watched(Coroutine[Any, Any, Any]):
    """Passes everything on. `moves` counts its steps, `waits` is what it awaits now. `watcher` is
    told before each step, and after it where it waits again; it is asked whether the step has to
    wait, where it `may_be_held`. `first`: what it awaits already, where it was started by hand.
    `is_over`: it has ended."""

    __slots__ = (
        "__name__", "__qualname__", "_first", "_late", "coroutine", "is_over", "may_be_held",
        "moves", "waits", "watcher",
    )  # fmt: skip

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        first: Any = _NOTHING,
        watcher: "Watcher | None" = None,
    ) -> None:
        self.coroutine, self.watcher = coroutine, watcher
        self._first = self.waits = first
        self._late: tuple[Any, ...] | None = None  # an error that it is told when it may go on
        self.moves = 0
        self.is_over = self.may_be_held = False
        self.__name__ = getattr(coroutine, "__name__", type(coroutine).__name__)
        self.__qualname__ = getattr(coroutine, "__qualname__", self.__name__)

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._first is not _NOTHING:
            first, self._first = self._first, _NOTHING
            return first
        return self.send(None)

    def send(self, value: Any, /) -> Any:
        if self.may_be_held and (gate := self._gate()) is not None:
            return gate
        if self._late:
            return self._throw(self._late)
        self._move()
        try:
            self.waits = self.coroutine.send(value)
        except BaseException:
            self._end()
            raise
        if self.watcher:
            self.watcher.rests()
        return self.waits

    def throw(self, *error: Any) -> Any:
        is_cancel = isinstance(error[0], CancelledError) or error[0] is CancelledError
        if self.may_be_held and not is_cancel and (gate := self._gate()) is not None:
            self._late = error
            return gate
        return self._throw(error)

    def _gate(self) -> Any:
        """What it has to wait for first."""
        gate = self.watcher.held() if self.watcher else None
        if gate is not None:
            gate._asyncio_future_blocking = True  # as by `await gate`; then it is sent to again
        return gate

    def _throw(self, error: tuple[Any, ...]) -> Any:
        self._late = None
        self._move()
        try:
            self.waits = self.coroutine.throw(*error)
        except BaseException:
            self._end()
            raise
        if self.watcher:
            self.watcher.rests()
        return self.waits

    def close(self) -> None:
        self.coroutine.close()
        self._end()

    def _move(self) -> None:
        self.moves += 1
        if self.watcher:
            self.watcher.moves()

    def _end(self) -> None:
        """`waits` stays: the last that it awaited."""
        if not self.is_over and self.watcher:
            self.is_over = True
            self.watcher.ends()
        self.is_over = True
