"""A few connections, lent one call at a time. No session state is ever left on one, so none is reset."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

__all__ = ["Pool"]


class Pool:
    """Opens up to `size` connections as they are needed; the last one used is lent first."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._idle: list[asyncpg.Connection] = []
        self._room = asyncio.Semaphore(size)
        self._pooled: bool | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._room:
            conn = await self._take()
            try:
                yield conn
            except asyncpg.PostgresError:
                self._give_back(conn)
                raise
            except BaseException:
                # Cancelled or cut off in the middle: nobody knows what this connection will say next.
                conn.terminate()
                raise
            else:
                self._give_back(conn)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close(timeout=5)

    async def _take(self) -> asyncpg.Connection:
        while self._idle:
            conn = self._idle.pop()
            if not conn.is_closed():
                return conn
        if self._pooled is None:
            self._pooled = await self._is_pooled()
        return await self._connect(cache=0 if self._pooled else 100)

    def _give_back(self, conn: asyncpg.Connection) -> None:
        if conn.is_closed() or conn.is_in_transaction():
            conn.terminate()
        else:
            self._idle.append(conn)

    async def _connect(self, cache: int) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, statement_cache_size=cache, timeout=10)

    async def _is_pooled(self) -> bool:
        """Whether a pooler stands in between: it makes up the process number that it announces.

        Behind one, each transaction may run on another server connection, so statements must not
        be prepared for later.
        """
        conn = await self._connect(cache=0)
        try:
            async with conn.transaction():
                real = await conn.fetchval("select pg_backend_pid()")
            return bool(real != conn.get_server_pid())
        finally:
            await conn.close(timeout=5)
