"""One statement on a connection of the caller's, whatever library it is of."""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from holdfast.stores.driver import Row

__all__ = ["BlockingCaller", "Caller", "Here", "InThread", "is_a", "named", "pyformat"]

T = TypeVar("T")


class Caller(Protocol):
    """A connection that is awaited. Statements have $1, $2 … for their values."""

    async def raw(self) -> Any:
        """The driver's own connection, once it is certain that a transaction will be open."""
        ...

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        """All rows, as tuples. Only after `raw`."""
        ...


class BlockingCaller(Protocol):
    """The same for a connection that blocks its thread."""

    def raw(self) -> Any: ...

    def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]: ...


class InThread:
    """A blocking connection, awaited: it works in a thread, so that the event loop goes on."""

    def __init__(self, blocking: BlockingCaller) -> None:
        self._blocking = blocking

    async def raw(self) -> Any:
        return await _in_thread(self._blocking.raw)

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        return await _in_thread(lambda: self._blocking.fetch(statement, *values))


class Here:
    """A blocking connection that no other thread may use."""

    def __init__(self, blocking: BlockingCaller) -> None:
        self._blocking = blocking

    async def raw(self) -> Any:
        return self._blocking.raw()

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        return self._blocking.fetch(statement, *values)


def is_a(thing: object, module: str, *names: str) -> bool:
    """Whether it is of these classes. A module that nobody imported has no instances."""
    loaded = sys.modules.get(module)
    kinds = (getattr(loaded, name, None) for name in names)
    return isinstance(thing, tuple(kind for kind in kinds if isinstance(kind, type)))


@lru_cache(64)
def pyformat(statement: str) -> str:
    """The statement with %(p1)s for $1."""
    return re.sub(r"\$(\d+)", r"%(p\1)s", statement.replace("%", "%%"))


def named(values: Sequence[Any]) -> dict[str, Any]:
    """The values by the names that `pyformat` gives."""
    return {f"p{n}": value for n, value in enumerate(values, 1)}


async def _in_thread(work: Callable[[], T]) -> T:
    """Whoever is cancelled stays until the thread has let go of the connection."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue
        if not running.cancelled():
            running.exception()  # nobody asks for it any more
        raise
