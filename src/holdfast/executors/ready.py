"""What a sync function gets where a coroutine would await: it happened before the call returned."""

from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Ready"]

T = TypeVar("T")


class Ready(Awaitable[T], Generic[T]):
    """An awaitable that is there already; nobody has to await it."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        return self._value
        yield  # which makes it a generator
