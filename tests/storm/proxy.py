"""A proxy between a client and PostgreSQL that cuts the connection around a named statement.

It knows just enough of the wire protocol: which prepared statement is which SQL (Parse), when it
is run (Bind, Execute), and when the server has committed and says so (ReadyForQuery).
"""

import asyncio
import contextlib
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before", "during", "after"]


class Proxy:
    """`before`: the statement never arrives. `during`: it arrives, and the client is gone while it
    still runs. `after`: it has committed, and its answer is lost."""

    def __init__(self, url: str) -> None:
        self._behind = urlsplit(url)
        self._text: str | None = None
        self._cut: Cut = "before"
        self.fired = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.passing = asyncio.Event()
        self.passing.set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.passing.set()
        self._server.close()
        for end in self._ends:
            end.close()
        await asyncio.gather(*self._links)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        netloc = f"{self._behind.username or 'postgres'}@127.0.0.1:{port}"
        return urlunsplit(self._behind._replace(netloc=netloc, query="sslmode=disable"))

    def arm(self, text: str, cut: Cut) -> None:
        """Cut the next connection that runs a statement with this text."""
        self._text, self._cut = text, cut
        self.fired.clear()

    def fall_silent(self) -> None:
        """A partition: nothing arrives any more, and nobody is told."""
        self.passing.clear()

    def speak_again(self) -> None:
        """The network is back; the connections that hung in it are dead."""
        for end in self._ends:
            end.close()
        self.passing.set()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        await self.passing.wait()
        up_reader, up_writer = await asyncio.open_connection(
            self._behind.hostname, self._behind.port or 5432
        )
        self._ends |= {writer, up_writer}
        link = _Link(self)
        ways = {
            asyncio.ensure_future(link.upwards(reader, up_writer)),
            asyncio.ensure_future(link.downwards(up_reader, writer)),
        }
        try:
            await asyncio.wait(ways, return_when="FIRST_COMPLETED")
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, up_writer):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()
            self._ends -= {writer, up_writer}
            self._links.discard(task)

    def hits(self, sql: str) -> Cut | None:
        if self._text is None or self._text not in sql:
            return None
        self._text = None
        return self._cut


class _Link:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._statements: dict[bytes, str] = {}
        self._cut: Cut | None = None

    async def upwards(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Client to server."""
        writer.write(await _opening(reader))
        while (message := await _message(reader)) is not None:
            kind, body = message[:1], message[5:]
            if kind == b"P":
                name, sql, _ = body.split(b"\0", 2)
                self._statements[name] = sql.decode()
            elif kind == b"B" and self._cut is None:
                name = body.split(b"\0", 2)[1]
                self._cut = self._proxy.hits(self._statements.get(name, ""))
                if self._cut == "before":
                    self._proxy.fired.set()
                    return
            await self._proxy.passing.wait()
            writer.write(message)
            if kind == b"S" and self._cut == "during":
                await writer.drain()
                self._proxy.fired.set()
                return

    async def downwards(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Server to client."""
        while (message := await _message(reader)) is not None:
            await self._proxy.passing.wait()
            if self._cut is None:
                writer.write(message)
            elif message[:1] == b"Z":  # ready for the next query: what ran is committed
                self._proxy.fired.set()
                return


async def _opening(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length) - 4)


async def _message(reader: asyncio.StreamReader) -> bytes | None:
    try:
        head = await reader.readexactly(5)
        return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
