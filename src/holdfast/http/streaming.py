"""A stream of events: as long as its key is let in, and somebody reads it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.http.hub import Told
from holdfast.http.routing import Ask

__all__ = ["Stream", "lines_of"]

logger = logging.getLogger("holdfast.http")
_PATIENCE = 60.0  # seconds for a reader to make room; our own server has less: see `patient`
_QUIET = 15.0  # seconds, then a sign of life
_AGAIN = 1.0  # seconds


class _Unread(Exception):
    """Whoever asked for it does not read it."""


class Stream(StreamingResponse):
    """Gives its place back however it ends, also where it never began, or where nobody reads it."""

    def __init__(self, lines: AsyncGenerator[bytes], place: ExitStack) -> None:
        super().__init__(
            lines,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"},
        )
        self._lines, self._place = lines, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await send(message)
            except TimeoutError:
                raise _Unread from None

        with self._place:
            async with aclosing(self._lines):
                try:
                    await super().__call__(scope, receive, sent)
                except _Unread:  # its server sees that the answer stays unfinished
                    logger.warning("a stream was not read for %.0f s, and is closed", _PATIENCE)


async def lines_of(
    ask: Ask, events: AsyncGenerator[list[Told]], types: frozenset[str]
) -> AsyncGenerator[bytes]:
    """Until the key that asked is let in no more, which is looked at before anything is said."""
    yield b"retry: 3000\n\n"
    loop = asyncio.get_running_loop()
    said = loop.time()
    async with aclosing(events):
        async for batch in events:
            if not await _is_admitted(ask):
                return
            lines = [one.line for one in batch if not types or one.type in types]
            if lines or loop.time() - said >= _QUIET:
                yield b"".join(lines) or b": still here\n\n"
                said = loop.time()


async def _is_admitted(ask: Ask) -> bool:
    """While the store does not say so, nothing is said: there is nothing new to tell either."""
    while True:
        try:
            return await ask.is_admitted()
        except HoldfastError:
            await asyncio.sleep(_AGAIN)
