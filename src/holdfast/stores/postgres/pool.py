"""A few connections, lent one call at a time. None keeps session state, so none is reset."""

import asyncio
from collections import deque
from contextlib import suppress
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
        self._url, self._size = url, size
        self._idle: list[asyncpg.Connection] = []
        self._lent = 0
        self._turns: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        self._pooled: bool | None = None
        self.must_ask = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._leaving: set[asyncio.Task[None]] = set()

    def connection(self, within: float) -> "_Loan":
        """One that is free within so many seconds. Where its block times out, it is given up."""
        return _Loan(self, within)

    def at_hand(self) -> asyncpg.Connection | None:
        """One that is lent at once; None: `lend` waits, or opens one."""
        self.check()
        while self._idle:  # nobody waits then
            conn = self._idle.pop()
            if not conn.is_closed():
                self._lent += 1
                return conn
        return None

    async def lend(self, within: float) -> asyncpg.Connection:
        if conn := self.at_hand():
            return conn
        over = asyncio.get_running_loop().time() + within
        if self._lent < self._size:
            self._lent += 1
        elif conn := await self._turn(over):
            return conn
        try:
            return await self._new(over)
        except BaseException:
            self._hand_on(None)
            raise

    def take_back(self, conn: asyncpg.Connection, error: BaseException | None = None) -> None:
        """`error`: how the call on it ended."""
        if error is None or isinstance(error, asyncpg.PostgresError):
            if not (self._closed or conn.is_closed() or conn.is_in_transaction()):
                self._hand_on(conn)
                return
            conn.terminate()
        elif isinstance(error, TimeoutError):
            self._give_up(conn)
        else:  # cancelled or cut off in the middle: nobody knows what it would say next
            conn.terminate()
        self._hand_on(None)

    async def _turn(self, over: float) -> asyncpg.Connection | None:
        """Wait for one that another gives back; None: it broke, and a new one takes its place."""
        turn: asyncio.Future[asyncpg.Connection | None]
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout_at(over):
                return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came at the last moment
                self._hand_on(turn.result())
            raise

    def _hand_on(self, conn: asyncpg.Connection | None) -> None:
        """To whoever waits longest, or to nobody."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(conn)
                return
        self._lent -= 1
        if conn:
            self._idle.append(conn)

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

    async def _new(self, over: float) -> asyncpg.Connection:
        async with asyncio.timeout_at(over):
            if self._pooled is None:
                self._pooled = await self._is_pooled()
            if not self._pooled:
                return await self._connect(cache=100, server_settings=_READ_COMMITTED)
            conn = await self._connect(cache=0)  # poolers refuse settings that they do not know
            self.must_ask = await conn.fetchval(_IS_ANOTHER)
            return conn

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


class _Loan:
    """A connection for one block."""

    __slots__ = ("_conn", "_pool", "_within")

    def __init__(self, pool: Pool, within: float) -> None:
        self._pool, self._within = pool, within

    async def __aenter__(self) -> asyncpg.Connection:
        self._conn = await self._pool.lend(self._within)
        return self._conn

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._pool.take_back(self._conn, error)


async def _say_goodbye(conn: asyncpg.Connection) -> None:
    with suppress(*PROBLEMS):  # it is aborted then
        await conn.close(timeout=_GOODBYE)
