"""Stands between a client and its server, and can go dead without a word."""

import asyncio
from typing import Self


class Wire:
    def __init__(self, server: int) -> None:
        self._to = server
        self.passed = 0
        self.connections = 0
        self._alive: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.freeze()
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Whoever is connected now hears nothing more; who comes later is served."""
        for pump in self._alive:
            pump.cancel()
        self._alive.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._to)
        self.connections += 1
        self._writers += [writer, forth]
        self._alive |= {
            asyncio.create_task(self._pump(reader, forth)),
            asyncio.create_task(self._pump(back, writer)),
        }

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            self.passed += 1
            writer.write(data)
        writer.close()
