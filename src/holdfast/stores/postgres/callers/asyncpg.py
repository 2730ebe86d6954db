"""asyncpg: connections, and the covers that its pools lend."""

from collections.abc import Sequence
from typing import Any

from holdfast.stores.driver import Row

__all__ = ["Asyncpg"]


class Asyncpg:
    """Outside a transaction, each statement is one: what asyncpg's users expect."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def raw(self) -> Any:
        return getattr(self._conn, "_con", None) or self._conn  # a pool lends a new cover each time

    async def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self._conn.fetch(statement, *values)
        return rows
