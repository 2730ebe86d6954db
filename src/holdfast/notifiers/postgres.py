"""Hints through PostgreSQL: LISTEN and NOTIFY."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import asyncpg

from holdfast.notifier import Hint, channel_of
from holdfast.notifiers.address import where
from holdfast.notifiers.ear import CannotListen, Ear, Heard
from holdfast.notifiers.messages import Marks, pack
from holdfast.notifiers.outage import Outage
from holdfast.notifiers.outbox import Outbox

__all__ = ["PostgresNotifier"]

_PATIENCE = 5.0
_GOODBYE = 1.0
_LIMIT = 7_900  # PostgreSQL takes payloads of less than 8000 bytes
_SCHEMES = ("postgresql", "postgres")
# One transaction, and one that never waits for disk or standby: a hint need not survive a crash.
# (PostgreSQL does not wait for one that only notifies anyway, but promises so nowhere.) Written out
# whole: a statement with parameters would take two round trips. As commands: a query is planned.
_NOTIFY = "begin; set local synchronous_commit = off; {}; commit"


class PostgresNotifier:
    """`listen_url`: the server itself, where `url` leads to a pooler. `check_every`: seconds
    after which a listening connection that is quiet is asked whether it still lives."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        listen_url: str | None = None,
        check_every: float = 20.0,
        marks: Marks | None = None,
    ) -> None:
        self._url = url
        self._listen_url = listen_url or url
        self._check_every = check_every
        self._marks = marks or Marks()
        self._channel = channel_of(schema)
        self._sender: asyncpg.Connection | None = None
        told, heard = where(url, *_SCHEMES), where(self._listen_url, *_SCHEMES)
        self._outbox = Outbox(self._send, Outage(f"telling hints through PostgreSQL at {told}"))
        listening = Outage(f"listening to PostgreSQL at {heard}")
        self._ear = Ear(self._hear, listening, self._marks)

    def tell(self, hints: Iterable[Hint]) -> None:
        self._outbox.tell(hints)

    async def listen(self, heard: Heard) -> None:
        await self._ear.listen(heard)

    def leave(self, heard: Heard) -> None:
        self._ear.leave(heard)

    async def close(self) -> None:
        await self._ear.close()
        await self._outbox.close()
        sender, self._sender = self._sender, None
        if sender is not None:
            await _say_goodbye(sender)

    async def _send(self, hints: list[Hint]) -> None:
        if self._sender is None or self._sender.is_closed():
            self._sender = await _connect(self._url)
        try:
            channel = self._channel.replace('"', '""')
            messages = pack(hints, _LIMIT, self._marks.write())
            told = [f'notify "{channel}", {_text(one)}' for one in messages]
            await self._sender.execute(_NOTIFY.format("; ".join(told)), timeout=_PATIENCE)
        except BaseException:
            self._sender.terminate()
            raise

    async def _hear(self) -> None:
        conn = await _connect(self._listen_url)
        gone = asyncio.Event()
        conn.add_termination_listener(lambda _: gone.set())
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._check_direct(conn)
                await conn.add_listener(self._channel, self._take)
            self._ear.ready()
            while not await _within(self._check_every, gone):
                await conn.fetchval("select 1", timeout=_PATIENCE)
            raise ConnectionError("the connection was closed")
        except OSError:  # it would not hear a goodbye
            conn.terminate()
            raise
        finally:
            await _say_goodbye(conn)

    def _take(self, _conn: object, _pid: int, _channel: str, payload: object) -> None:
        self._ear.take(str(payload))

    async def _check_direct(self, conn: asyncpg.Connection) -> None:
        """A pooler makes up the process number that it announces, and forgets a LISTEN."""
        if await conn.fetchval("select pg_backend_pid()") != conn.get_server_pid():
            raise CannotListen(
                f"a pooler stands before PostgreSQL at {where(self._listen_url, *_SCHEMES)}, "
                "through which nothing can be heard: workers fall back to polling for what NOTIFY "
                "alone tells of. Give listen_url the address of the server itself to hear at once"
            )


def _text(value: str) -> str:
    """As a literal, whatever the server's settings for backslashes are."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"E'{escaped}'"


async def _connect(url: str) -> asyncpg.Connection:
    # Behind a pooler a prepared statement is gone with the transaction.
    return await asyncpg.connect(url, statement_cache_size=0, timeout=_PATIENCE)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def _say_goodbye(conn: asyncpg.Connection) -> None:
    # It is aborted where it does not answer.
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await conn.close(timeout=_GOODBYE)
