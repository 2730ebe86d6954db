"""SQLAlchemy: connections and sessions, awaited or blocking, on asyncpg or psycopg.

Statements go through SQLAlchemy, not past it: it begins transactions late, and commits only those
that it knows of.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.stores.driver import Row
from holdfast.stores.postgres.callers.caller import is_a, named, pyformat

__all__ = ["AsyncSqlalchemy", "Sqlalchemy"]


class AsyncSqlalchemy:
    """An `AsyncConnection` or `AsyncSession`."""

    def __init__(self, conn: Any) -> None:
        self._given = conn
        self._conn: Any = None

    async def raw(self) -> Any:
        self._conn = self._given
        if is_a(self._given, "sqlalchemy.ext.asyncio", "AsyncSession"):
            _check_dialect(self._given.get_bind().dialect)
            self._conn = await self._given.connection()
        _check_dialect(self._conn.dialect)
        return _in_transaction(await self._conn.get_raw_connection())

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        spoken = _spoken(self._conn.dialect, statement, values)
        return [tuple(row) for row in await self._conn.exec_driver_sql(*spoken)]


class Sqlalchemy:
    """A `Connection` or `Session`."""

    def __init__(self, conn: Any) -> None:
        self._given = conn
        self._conn: Any = None

    @property
    def awaits(self) -> bool:
        """Whether it is the inner side of an asynchronous one."""
        if is_a(self._given, "sqlalchemy.orm", "Session"):
            return is_a(self._given.bind, "sqlalchemy.engine", "Engine", "Connection") and bool(
                self._given.bind.dialect.is_async
            )
        return bool(self._given.dialect.is_async)

    def raw(self) -> Any:
        self._conn = self._given
        if is_a(self._given, "sqlalchemy.orm", "Session"):
            _check_dialect(self._given.get_bind().dialect)  # before it opens what we cannot use
            self._conn = self._given.connection()
        _check_dialect(self._conn.dialect)
        return _in_transaction(self._conn.connection)

    def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        spoken = _spoken(self._conn.dialect, statement, values)
        return [tuple(row) for row in self._conn.exec_driver_sql(*spoken)]


def _check_dialect(dialect: Any) -> None:
    if dialect.name != "postgresql" or dialect.driver not in ("asyncpg", "psycopg"):
        raise InvalidInput(
            f"conn= is a SQLAlchemy connection by {dialect.name}+{dialect.driver}; this store "
            "takes those by postgresql+asyncpg and postgresql+psycopg"
        )


def _in_transaction(pooled: Any) -> Any:
    if pooled.dbapi_connection.autocommit:
        raise InvalidInput(
            "conn= has the isolation level AUTOCOMMIT, so the task would not wait for your rows; "
            "use a connection without it, and open a transaction with `begin()`"
        )
    return pooled.driver_connection


def _spoken(dialect: Any, statement: str, values: Sequence[Any]) -> tuple[str, Any]:
    if dialect.driver == "asyncpg":
        return statement, tuple(values)
    return pyformat(statement), named(values)
