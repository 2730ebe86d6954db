"""A coroutine that tells when it takes a step, and what it waits for."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

__all__ = ["Watched"]

_NOTHING = object()


class Watched(Coroutine[Any, Any, Any]):
    """Passes everything on. `moves` counts its steps, `waits` is what it awaits now; `moved` is
    called at each step, `over` at its end. `first`: what it awaits already, where it was started
    by hand."""

    __slots__ = (
        "__name__", "__qualname__", "_coroutine", "_first", "_moved", "_over", "moves", "waits",
    )  # fmt: skip

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        first: Any = _NOTHING,
        moved: Callable[[], None] | None = None,
        over: Callable[[], None] | None = None,
    ) -> None:
        self._coroutine, self._moved, self._over = coroutine, moved, over
        self._first = self.waits = first
        self.moves = 0
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
        self._move()
        try:
            self.waits = self._coroutine.send(value)
        except BaseException:
            self._end()
            raise
        return self.waits

    def throw(self, *error: Any) -> Any:
        self._move()
        try:
            self.waits = self._coroutine.throw(*error)
        except BaseException:
            self._end()
            raise
        return self.waits

    def close(self) -> None:
        self._coroutine.close()
        self._end()

    def _move(self) -> None:
        self.moves += 1
        if self._moved:
            self._moved()

    def _end(self) -> None:
        self.waits = None
        over, self._over = self._over, None
        if over:
            over()
