"""Where an app's tasks live: its store and its notifier, opened when needed, once for each loop."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from holdfast.app.backends import RedisBackend
from holdfast.client import Client
from holdfast.clock import Clock
from holdfast.executors.places import check_not_importing
from holdfast.notifier import Notifier
from holdfast.store import Store
from holdfast.tasks.names import check_number
from holdfast.tasks.task import Draft

if TYPE_CHECKING:
    from holdfast.notifiers.messages import Marks
    from holdfast.notifiers.redis import RedisNotifier
    from holdfast.sealing import KeyRing

__all__ = ["Home", "plain_url"]

logger = logging.getLogger("holdfast")
_MEMORY = "sqlite://:memory:"


class Home:
    """A connection to PostgreSQL hangs on its event loop, so each loop has its own; SQLite's
    threads answer to all."""

    def __init__(
        self,
        url: str,
        *,
        redis: RedisBackend | None,
        clock: Clock,
        auto_migrate: bool,
        told: Callable[[Sequence[Draft]], None] | None = None,
        ring: "KeyRing | None" = None,
        pool_size: int | None = None,
    ) -> None:
        self.url, self.redis, self.clock = url, redis, clock
        self._auto_migrate, self.told, self.ring = auto_migrate, told, ring
        if pool_size is not None:
            check_number("pool_size", pool_size, 1, 1000)
        self.pool_size = pool_size
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Client]] = (
            WeakKeyDictionary()
        )
        self._notifiers: WeakKeyDictionary[asyncio.AbstractEventLoop, Notifier] = (
            WeakKeyDictionary()
        )
        self._shared: Store | None = None  # SQLite
        self._lock = threading.Lock()
        self._opening: Future[Store | None] | None = None

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    @property
    def is_in_memory(self) -> bool:
        """Of this very process: no other one can see it."""
        return self.url.startswith(_MEMORY)

    @property
    def name(self) -> str:
        """The store without its secrets, for logs and people."""
        return plain_url(self.url)

    async def client(self) -> Client:
        """Opened by the first who asks; all others of this loop wait for it."""
        check_not_importing()
        loop = asyncio.get_running_loop()
        opening = self._clients.get(loop)
        if opening is not None and opening.done():
            if not (opening.cancelled() or opening.exception()):
                return opening.result()
            opening = None
        if opening is None:
            for past in [each for each in self._clients if each.is_closed()]:
                del self._clients[past]  # nothing more can be asked there
            opening = self._clients[loop] = loop.create_task(self._open())
        return await asyncio.shield(opening)

    async def _open(self) -> Client:
        store = await (self._share() if self.is_sqlite else self._store())
        return Client(store, self.notifier(), self.told)

    async def _share(self) -> Store:
        """The loop that comes first opens it, the others wait: two in-memory stores would be two
        worlds. Where the first one fails, the next one tries."""
        while True:
            with self._lock:
                opening, is_first = self._opening, self._opening is None
                if opening is None:
                    opening = self._opening = Future()
            if is_first:
                return await self._open_for_all(opening)
            if store := await asyncio.shield(asyncio.wrap_future(opening)):
                return store

    async def _open_for_all(self, opening: "Future[Store | None]") -> Store:
        try:
            store = self._shared = await self._store()
        except BaseException:
            self._opening = None
            opening.set_result(None)
            raise
        opening.set_result(store)
        return store

    async def _store(self, connections: int = 8, migrate: bool | None = None) -> Store:
        from holdfast.stores.opening import open_store

        store = await open_store(
            self.url,
            clock=self.clock,
            migrate=self._auto_migrate if migrate is None else migrate,
            connections=connections,
            transactions=self.pool_size,
        )
        if self.ring is None:
            return store
        from holdfast.stores.sealed import sealed

        return sealed(store, self.ring)

    @contextlib.asynccontextmanager
    async def apart(self) -> AsyncIterator[Store]:
        """A store for another thread, whose calls wait for nobody else's."""
        if self._shared:
            yield self._shared
            return
        store = await self._store(connections=2, migrate=False)
        try:
            yield store
        finally:
            await store.close()

    def notifier(self) -> Notifier:
        loop = asyncio.get_running_loop()
        found = self._notifiers.get(loop)
        if found is None:
            found = self._notifiers[loop] = self._notifier()
        return found

    def _notifier(self) -> Notifier:
        if self.redis is None or self.is_in_memory:  # of which nobody else could hear
            return self._own_notifier()
        from holdfast.notifiers.several import SeveralNotifier

        return SeveralNotifier(self.url, quick=self._redis_notifier, own=self._own_notifier)

    def carriers(self) -> dict[str, Notifier]:
        """Each way that hints go, by itself, for whoever wants to try it; theirs to close."""
        own = "SQLite's datagrams" if self.is_sqlite else "PostgreSQL"
        found: dict[str, Notifier] = {own: self._own_notifier()}
        if self.redis and not self.is_in_memory:
            found["Redis"] = self._redis_notifier()
        return found

    def _redis_notifier(self, marks: "Marks | None" = None) -> "RedisNotifier":
        from holdfast.notifiers.redis import RedisNotifier

        assert self.redis is not None
        return RedisNotifier(self.redis.url, name=self._channel(), marks=marks)

    def _own_notifier(self, marks: "Marks | None" = None) -> Notifier:
        """The store's: all who have the store have it."""
        if self.is_in_memory:
            from holdfast.notifiers.local import LocalNotifier

            return LocalNotifier(f"memory:{id(self)}")
        if self.is_sqlite:
            from holdfast.notifiers.datagram import DatagramNotifier

            return DatagramNotifier(self._file(), marks=marks)
        from holdfast.notifiers.postgres import PostgresNotifier
        from holdfast.stores.opening import postgres_parts

        plain, own = postgres_parts(self.url)
        return PostgresNotifier(
            plain,
            schema=own.get("schema", "holdfast"),
            listen_url=own.get("listen_url"),
            marks=marks,
        )

    def _channel(self) -> str:
        """Apps of one store share a channel, and no others."""
        if self.is_sqlite:
            return self._file().name
        parts = urlsplit(self.url)
        schema = dict(parse_qsl(parts.query)).get("schema", "holdfast")
        return f"{parts.path.strip('/')}.{schema}"

    def _file(self) -> Path:
        return Path(self.url.partition("?")[0].removeprefix("sqlite:///"))

    async def close(self) -> None:
        """What this loop has opened; the threads of SQLite with it."""
        loop = asyncio.get_running_loop()
        if notifier := self._notifiers.pop(loop, None):
            await notifier.close()
        opening = self._clients.pop(loop, None)
        if opening and not opening.cancelled():
            with contextlib.suppress(Exception):
                await (await opening).store.close()
            self._shared = self._opening = None


def plain_url(url: str) -> str:
    """A URL without what may be secret, whatever a password is made of."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
