"""What these tests do, said shortly."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import apsw

from holdfast.stores.sqlite.driver import SqliteDriver
from holdfast.stores.sqlite.session import Session

__all__ = ["Failing", "busy", "heard", "peek"]


async def peek(driver: SqliteDriver, sql: str) -> list[tuple[Any, ...]]:
    async with driver.transaction() as conn:
        return await conn.execute(sql)


@asynccontextmanager
async def busy(driver: SqliteDriver, *, writes: bool) -> AsyncIterator[None]:
    """The writer, or the reader, is at something all the while."""
    begun, go = threading.Event(), threading.Event()

    def work(_: object) -> None:
        begun.set()
        go.wait(60)

    task = asyncio.create_task(driver._ask(work, writes=writes))
    await asyncio.to_thread(begun.wait, 60)
    try:
        yield
    finally:
        go.set()
        await task


class Failing:
    """A connection whose statements of some kind fail as on a disk that went away."""

    def __init__(self, conn: apsw.Connection, *statements: str) -> None:
        self._conn, self._statements = conn, statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def __enter__(self) -> Any:
        return self._conn.__enter__()

    def __exit__(self, *how: Any) -> Any:
        return self._conn.__exit__(*how)

    def execute(self, sql: str, *parameters: Any) -> Any:
        if sql in self._statements:
            raise apsw.IOError("disk I/O error")
        return self._conn.execute(sql, *parameters)


@contextmanager
def heard(monkeypatch: Any) -> Iterator[list[str]]:
    """The names of the statements that run meanwhile."""
    names: list[str] = []

    def listening(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Session, name: str, /, **values: Any) -> Any:
            names.append(name)
            return method(self, name, **values)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(Session, "rows", listening(Session.rows))
        patch.setattr(Session, "each", listening(Session.each))
        yield names
