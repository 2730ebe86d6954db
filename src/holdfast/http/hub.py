"""Events for many listeners: one reader of the store for all of them, and a short memory.

Whoever is further back than the memory reaches reads for itself until it has caught up, a few at
a time; whoever is slow holds up nobody. Nothing is lost or doubled: all go by the sequence.
"""

import asyncio
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec

from holdfast.desk.caller import Caller
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import EventView
from holdfast.errors import HoldfastError
from holdfast.http.problems import Problem

__all__ = ["Hub", "Hubs", "Told"]

logger = logging.getLogger("holdfast.http")
_MEMORY = 10_000  # events
_PAGE = 500
_QUICK, _SLOW = 0.1, 1.0  # seconds between looks
_TICK = 0.5  # seconds; so often whoever follows is heard from, also where nothing happens


class Told(msgspec.Struct, frozen=True):
    """An event as it is sent."""

    seq: int
    type: str
    line: bytes


def told(event: EventView) -> Told:
    data = msgspec.json.encode(event)
    line = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), data)
    return Told(event.seq, event.type, line)


class Hub:
    """The events of one tenant, or of all. Belongs to one event loop."""

    def __init__(self, desk: Callable[[], Awaitable[Desk]]) -> None:
        self._desk = desk
        self._memory: list[Told] = []
        self._from = self._last = 0  # in memory: all after `_from`, up to `_last`
        self._news = asyncio.Condition()
        self._behind = asyncio.Semaphore(4)
        self._listeners = 0
        self._reading: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._closed = False

    async def now(self) -> int:
        """The last number that is known; looked up where nobody listens yet."""
        return self._last if self._started.is_set() else await (await self._desk()).newest_event()

    async def follow(self, place: int) -> AsyncGenerator[list[Told]]:
        """All after `place`; an empty list, where nothing has come for a moment."""
        self._listeners += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        try:
            await self._started.wait()
            while not self._closed:
                batch, place = await self._since(place)
                if batch or await self._quiet(place):
                    yield batch
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._rest()

    def _rest(self) -> None:
        if self._reading:
            self._reading.cancel()
        self._reading = None
        self._memory, self._started = [], asyncio.Event()

    async def _since(self, place: int) -> tuple[list[Told], int]:
        if place >= self._from:
            begin = bisect_right(self._memory, place, key=lambda one: one.seq)
            batch = self._memory[begin : begin + _PAGE]
            # All of it: also past others' events, which are not in here.
            return batch, batch[-1].seq if len(batch) == _PAGE else max(place, self._last)
        async with self._behind:
            page = await (await self._desk()).events(place, _PAGE)
        if page.last <= place:
            await asyncio.sleep(_SLOW)  # what was there is forgotten, and nothing has come
        return [told(event) for event in page.data], max(page.last, place)

    async def _quiet(self, place: int) -> bool:
        """Wait for something after `place`; True: nothing came for a moment."""
        try:
            async with asyncio.timeout(_TICK), self._news:
                await self._news.wait_for(lambda: self._last > place or self._closed)
        except TimeoutError:
            return True
        return False

    async def _read(self) -> None:
        pause, failing = _QUICK, False
        while True:
            try:
                if not self._started.is_set():
                    self._from = self._last = await (await self._desk()).newest_event()
                    self._started.set()
                found = await self._look()
                pause, failing = _QUICK if found else min(pause * 1.5, _SLOW), False
            except HoldfastError as error:
                if not failing:
                    logger.warning("could not read events: %s; trying again", error)
                pause, failing = _SLOW, True
            await asyncio.sleep(pause)

    async def _look(self) -> bool:
        page = await (await self._desk()).events(self._last, _PAGE)
        if page.last <= self._last:
            return False
        async with self._news:
            self._memory += [told(event) for event in page.data]
            if len(self._memory) > _MEMORY:
                gone = len(self._memory) - _MEMORY
                self._from = self._memory[gone - 1].seq
                del self._memory[:gone]
            self._last = page.last
            self._news.notify_all()
        return True

    async def close(self) -> None:
        async with self._news:
            self._closed = True
            self._news.notify_all()


class Hubs:
    """A hub for each tenant that is listened to, and who listens how often."""

    def __init__(
        self,
        desk_for: Callable[[Caller], Awaitable[Desk]],
        *,
        most_each: int = 100,
        most: int = 1000,
    ) -> None:
        self._desk_for, self._most_each, self._most = desk_for, most_each, most
        self._hubs: dict[str | None, Hub] = {}
        self._streams: Counter[str] = Counter()

    def hub(self, caller: Caller) -> Hub:
        tenant = caller.tenant
        if tenant not in self._hubs:
            reader = Caller(name="events", tenant=tenant)
            self._hubs[tenant] = Hub(lambda: self._desk_for(reader))
        return self._hubs[tenant]

    @contextmanager
    def listening(self, caller: Caller) -> Iterator[None]:
        if self._streams[caller.name] >= self._most_each or self._streams.total() >= self._most:
            raise Problem(
                429,
                "too_many_streams",
                f"this key has {self._streams[caller.name]} streams open; close one first",
                headers={"Retry-After": "10"},
            )
        self._streams[caller.name] += 1
        try:
            yield
        finally:
            self._streams[caller.name] -= 1
            if not self._streams[caller.name]:
                del self._streams[caller.name]

    async def close(self) -> None:
        for hub in self._hubs.values():
            await hub.close()
        self._hubs.clear()
