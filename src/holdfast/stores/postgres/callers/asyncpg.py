"""asyncpg: connections, and the covers that its pools lend."""

from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.stores.driver import Row

__all__ = ["Asyncpg"]


class Asyncpg:
    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def raw(self) -> Any:
        conn = self._conn
        if not conn.is_closed() and not conn.is_in_transaction():
            raise InvalidInput(
                "conn= commits each statement by itself, so the task would not wait for your rows; "
                "open a transaction first with `async with conn.transaction():`"
            )
        return getattr(self._conn, "_con", None) or self._conn  # a pool lends a new cover each time

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self._conn.fetch(statement, *values)
        return rows
