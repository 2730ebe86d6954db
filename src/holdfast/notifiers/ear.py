"""Hearing that mends itself: a connection that breaks is made anew, and the gap is owned up to."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.errors import InvalidInput
from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers.ending import end
from holdfast.notifiers.messages import Marks, unpack
from holdfast.notifiers.outage import LOG, Backoff, Outage

__all__ = ["CannotListen", "Ear", "Heard", "call"]

_SETTLED = 30.0  # seconds after which a connection counts as a good one

Heard = Callable[[Hint], None]


class CannotListen(Exception):
    """Trying again would not help; the message says what would."""


class Ear:
    """`hear` connects, calls `ready`, and hands each message to `take`, until it raises. `hears`:
    nothing is known to be missing."""

    def __init__(
        self, hear: Callable[[], Awaitable[None]], outage: Outage, marks: Marks | None = None
    ) -> None:
        self._hear = hear
        self._marks = marks or Marks()
        self.hears = False
        self._outage = outage
        self._listeners: list[Heard] = []
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._missed = False
        self._closed = False

    async def listen(self, heard: Heard) -> None:
        """Answers after the first try, whether it went well or not."""
        if self._closed:
            raise InvalidInput("this notifier is closed; make a new one to listen")
        self._listeners.append(heard)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="holdfast-listen")
        await self._tried.wait()

    def leave(self, heard: Heard) -> None:
        if heard in self._listeners:
            self._listeners.remove(heard)

    def ready(self) -> None:
        self._outage.ended()
        if self._missed:
            self._pass_on(EVERYTHING)
        self.hears = True
        self._tried.set()

    def take(self, message: str | bytes) -> None:
        for hint in unpack(message, self._marks.is_known):
            self._pass_on(hint)

    async def close(self) -> None:
        self._closed = True
        self._tried.set()
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> None:
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._hear_on()
            except CannotListen as reason:
                LOG.warning("%s", reason)
                self._tried.set()
                return
            except Exception as error:  # whatever a driver raises, it must not end the listening
                self._outage.began(error)
            self._missed = True
            self._tried.set()
            if loop.time() - began > _SETTLED:
                backoff.reset()
            await backoff.pause()

    async def _hear_on(self) -> None:
        try:
            await self._hear()
        finally:
            self.hears = False

    def _pass_on(self, hint: Hint) -> None:
        for heard in tuple(self._listeners):  # one may leave as it hears
            call(heard, hint)


def call(heard: Heard, hint: Hint) -> None:
    """A listener's own fault must not make the others deaf."""
    try:
        heard(hint)
    except Exception:
        LOG.exception("a listener failed on the hint %s; it goes on with the next", hint)
