"""Keys that the store keeps: looked up again every half second, so that a revoked one is refused
within a second by every process."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from holdfast.client import Client
from holdfast.clock import Clock
from holdfast.desk.caller import Caller
from holdfast.desk.keys import read
from holdfast.errors import HoldfastError
from holdfast.records import KeyRecord
from holdfast.store import Store

__all__ = ["StoredKeys"]

logger = logging.getLogger("holdfast.http")
_FRESH = 500_000  # microseconds
_TOUCH = 60_000_000
_MOST = 10_000
_NOBODY = bytes(32)


class StoredKeys:
    """Keeps `holdfast.http.auth.Keys`."""

    def __init__(self, clock: Clock, client: Callable[[], Awaitable[Client]]) -> None:
        self._clock, self._client = clock, client
        self._known: OrderedDict[str, tuple[int, KeyRecord]] = OrderedDict()
        self._all: tuple[int, dict[str, KeyRecord]] | None = None
        self._looking = asyncio.Lock()
        self._touched: dict[str, int] = {}
        self._any = False

    async def caller(self, key: str, *, sparing: bool = False) -> Caller | None:
        shown = read(key)
        if shown is None:
            return None
        id = shown.id
        record = (await self._everything()).get(id) if sparing else await self._record(id)
        proved = shown.proves(record.digest if record else _NOBODY)  # as long for a wrong id
        if not (proved and record and record.is_valid):
            return None
        await self._touch(record.id)
        return Caller(
            name=f"{record.name} ({record.id})",
            tenant=record.tenant,
            scopes=frozenset(record.scopes),
        )

    async def any(self) -> bool:
        """Also those that were revoked: a door that had a lock stays locked."""
        self._any = self._any or bool(await self._everything())
        return self._any

    async def _record(self, id: str) -> KeyRecord | None:
        now = self._clock.boot()
        at, record = self._known.get(id, (None, None))
        if at is not None and now - at < _FRESH:
            return record
        record = await (await self._store()).key(id)
        if record is None:  # not remembered, or wrong ids would push out the good ones
            return None
        self._known[id] = (now, record)
        self._known.move_to_end(id)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return record

    async def _everything(self) -> dict[str, KeyRecord]:
        """All keys by their ids: read every half second at most, however many ask."""
        async with self._looking:
            now = self._clock.boot()
            if self._all is None or now - self._all[0] >= _FRESH:
                found = await (await self._store()).keys()
                self._all = (now, {record.id: record for record in found})
            return self._all[1]

    async def _touch(self, id: str) -> None:
        now = self._clock.boot()
        if now - self._touched.get(id, -_TOUCH) < _TOUCH:
            return
        self._touched[id] = now
        try:
            await (await self._store()).touch_keys([id])
        except HoldfastError as error:
            logger.warning("could not note that a key was used: %s", error)

    async def _store(self) -> Store:
        return (await self._client()).store
