"""What these tests do, said shortly."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from holdfast.stores.sqlite.driver import SqliteDriver
from holdfast.stores.sqlite.session import Session

__all__ = ["Failing", "busy", "heard", "peek", "spent"]


async def peek(driver: SqliteDriver, sql: str) -> list[tuple[Any, ...]]:
    async with driver.transaction() as conn:
        return await conn.execute(sql)


async def busy(driver: SqliteDriver, seconds: float) -> asyncio.Task[Any]:
    """The writer is at something for a while."""
    task = asyncio.create_task(driver._ask(lambda _: time.sleep(seconds), writes=True))
    await asyncio.sleep(0.05)
    return task


async def spent(work: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


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
