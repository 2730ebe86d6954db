"""psycopg 3: `AsyncConnection`, and `Connection` for those who block."""

import sys
from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.stores.driver import Row
from holdfast.stores.postgres.callers.caller import named, pyformat

__all__ = ["AsyncPsycopg", "Psycopg"]

_IDLE = 0  # PQTRANS_IDLE of libpq


class AsyncPsycopg:
    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def raw(self) -> Any:
        _check(self._conn, "async with conn.transaction():")
        return self._conn

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        psycopg: Any = sys.modules["psycopg"]
        # A cursor of our own: those of conn may want other parameters, or give other rows.
        async with psycopg.AsyncCursor(self._conn, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(pyformat(statement), named(values))
            rows: Sequence[Row] = await cursor.fetchall()
            return rows


class Psycopg:
    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def raw(self) -> Any:
        _check(self._conn, "with conn.transaction():")
        return self._conn

    def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        psycopg: Any = sys.modules["psycopg"]
        with psycopg.Cursor(self._conn, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(pyformat(statement), named(values))
            rows: Sequence[Row] = cursor.fetchall()
            return rows


def _check(conn: Any, block: str) -> None:
    if conn.autocommit and conn.info.transaction_status == _IDLE:
        raise InvalidInput(
            "conn= commits each statement by itself, so the task would not wait for your rows; "
            f"open a transaction first with `{block}`"
        )
