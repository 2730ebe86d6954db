"""A few connections, lent one call at a time. None keeps session state, so none is reset."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from holdfast.errors import InvalidInput, StoreError
from holdfast.stores.postgres.problems import PROBLEMS, said

__all__ = ["Pool"]

_CONNECT = 10.0
_GOODBYE = 5.0
_READ_COMMITTED = {"default_transaction_isolation": "read committed"}
_IS_ANOTHER = "select current_setting('default_transaction_isolation') <> 'read committed'"


class Pool:
    """Opens up to `size` connections as they are needed; the last one used is lent first.

    All verbs are made for read committed, where each statement sees what others have committed. A
    database or a role may have another default: our connections set it right; those to a pooler,
    which keep no setting, cannot, and `must_ask` says that each transaction must.
    """

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._idle: list[asyncpg.Connection] = []
        self._room = asyncio.Semaphore(size)
        self._pooled: bool | None = None
        self.must_ask = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._leaving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def connection(self, within: float) -> AsyncIterator[asyncpg.Connection]:
        """One that is free within so many seconds. Where its block times out, it is given up."""
        self.check()
        over = asyncio.get_running_loop().time() + within
        if self._room.locked():
            async with asyncio.timeout_at(over):
                await self._room.acquire()
        else:
            await self._room.acquire()
        try:
            conn = self._rested() or await self._new(over)
            try:
                yield conn
            except asyncpg.PostgresError:
                self._give_back(conn)
                raise
            except TimeoutError:
                self._give_up(conn)
                raise
            except BaseException:
                # Cancelled or cut off in the middle: nobody knows what it would say next.
                conn.terminate()
                raise
            else:
                self._give_back(conn)
        finally:
            self._room.release()

    def check(self) -> None:
        """Connections hang on the loop that opened them: from another, a call would never end."""
        if self._closed:
            raise StoreError("the store is closed; open a new one")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise StoreError(
                "a store belongs to one event loop; open another one in the other thread"
            )

    async def close(self) -> None:
        if self._closed:
            return
        self.check()
        self._closed = True
        while self._idle:
            await _say_goodbye(self._idle.pop())
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _rested(self) -> asyncpg.Connection | None:
        while self._idle:
            conn = self._idle.pop()
            if not conn.is_closed():
                return conn
        return None

    async def _new(self, over: float) -> asyncpg.Connection:
        async with asyncio.timeout_at(over):
            if self._pooled is None:
                self._pooled = await self._is_pooled()
            if not self._pooled:
                return await self._connect(cache=100, server_settings=_READ_COMMITTED)
            conn = await self._connect(cache=0)  # poolers refuse settings that they do not know
            self.must_ask = await conn.fetchval(_IS_ANOTHER)
            return conn

    def _give_back(self, conn: asyncpg.Connection) -> None:
        if self._closed or conn.is_closed() or conn.is_in_transaction():
            conn.terminate()
        else:
            self._idle.append(conn)

    def _give_up(self, conn: asyncpg.Connection) -> None:
        """asyncpg is asking the server to stop: let it, or statements that wait would pile up."""
        leaving = asyncio.create_task(_say_goodbye(conn))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _connect(self, cache: int, **settings: Any) -> asyncpg.Connection:
        try:
            return await asyncpg.connect(
                self._url, statement_cache_size=cache, timeout=_CONNECT, **settings
            )
        except asyncpg.ClientConfigurationError as error:
            raise InvalidInput(f"the store's URL cannot be used: {said(error)}") from None
        except ValueError:  # may quote any part of the URL
            raise InvalidInput(
                "the store's URL cannot be used: a port is no number, or a host is no name"
            ) from None

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
            await conn.close(timeout=_GOODBYE)


async def _say_goodbye(conn: asyncpg.Connection) -> None:
    with suppress(*PROBLEMS):  # it is aborted then
        await conn.close(timeout=_GOODBYE)
