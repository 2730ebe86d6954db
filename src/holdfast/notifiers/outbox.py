"""What was told and is not sent yet."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from holdfast.notifier import Hint
from holdfast.notifiers.ending import end
from holdfast.notifiers.gathered import Gathered
from holdfast.notifiers.outage import LOG, Backoff, Outage

__all__ = ["Outbox"]

_FAREWELL = 1.0  # seconds in which what was told just before `close` may still leave

Send = Callable[[list[Hint]], Awaitable[None]]


class Outbox:
    """Sends one batch at a time: whatever is told meanwhile makes up the next one.

    What a failed batch held waits with the rest for the next try.
    """

    def __init__(self, send: Send, outage: Outage) -> None:
        self._send = send
        self._outage = outage
        self._waiting = Gathered()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: asyncio.Task[None] | None = None
        self._misused = False
        self._closed = False

    @property
    def is_empty(self) -> bool:
        """All that was told has been sent."""
        return not self._waiting and self._sending is None

    @property
    def fails(self) -> bool:
        return self._outage.lasts

    def tell(self, hints: Iterable[Hint]) -> bool:
        """False where it was dropped."""
        if self._closed or not self._is_at_home():
            return False
        self._waiting.add(hints)
        if self._waiting and self._sending is None:
            assert self._loop is not None
            self._sending = self._loop.create_task(self._run(), name="holdfast-tell")
        return True

    async def close(self) -> None:
        self._closed = True
        if self._sending is not None and not self._outage.lasts:
            await asyncio.wait([self._sending], timeout=_FAREWELL)
        if self._sending is not None:
            await end(self._sending)

    async def _run(self) -> None:
        backoff = Backoff()
        try:
            while self._waiting:
                batch = self._waiting.take()
                try:
                    await self._send(batch)
                except Exception as error:  # whatever a driver raises, a hint is not worth a crash
                    self._outage.began(error)
                    self._waiting.add(batch)
                    await backoff.pause()
                except BaseException:  # given up: it was not sent
                    self._waiting.add(batch)
                    raise
                else:
                    self._outage.ended()
                    backoff.reset()
        finally:
            self._sending = None

    def _is_at_home(self) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if self._loop is None:
            self._loop = loop
        if loop is not None and loop is self._loop:
            return True
        if not self._misused:
            self._misused = True
            LOG.warning(
                "hints told outside of the event loop that this notifier belongs to are dropped; "
                "call tell() in that loop"
            )
        return False
