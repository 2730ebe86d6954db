"""SQLite through apsw: verbs by name, on a thread that writes and two that read, or on none."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidInput, StoreError
from holdfast.stores.driver import Row
from holdfast.stores.sqlite import reading, schema
from holdfast.stores.sqlite.database import Database, Work
from holdfast.stores.sqlite.opening import MEMORY
from holdfast.stores.sqlite.session import instant_of, uuid_of
from holdfast.stores.sqlite.threads import Hold, Reader, Writer
from holdfast.stores.sqlite.transaction import SqliteConnection
from holdfast.stores.sqlite.verbs import VERBS

__all__ = ["SqliteDriver"]


class SqliteDriver:
    """One file, or `:memory:`. Nothing is opened before the first call.

    `synchronous="normal"`: a power cut may lose what was acknowledged last; a crash does not.
    `inline`: no threads; every verb runs at once where it is called and never suspends.
    `timeout`: seconds to wait for other processes that write the same file, and that `query` may
    take.
    """

    one_writer = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        synchronous: str = "full",
        inline: bool = False,
        timeout: float = 30.0,
    ) -> None:
        if synchronous not in ("full", "normal"):
            raise InvalidInput(f"synchronous is 'full' or 'normal', not {synchronous!r}")
        self._path = path if path == MEMORY else os.path.realpath(path)
        # A file is one store for all who open it; memory is each driver's own.
        self._place = f"{MEMORY}{id(self)}" if path == MEMORY else self._path
        self._clock = clock or SystemClock()
        self._synchronous, self._timeout = synchronous, timeout
        self._pid = os.getpid()
        self._patient: set[reading.Patience] = set()  # of queries under way
        self._closed = False
        self._inline = inline
        self._database: Database | None = None
        self._writer = Writer("holdfast-writer", self._open)
        self._reader = Reader("holdfast-reader", self._open)
        self._pages = Reader("holdfast-pages", self._open)  # which nobody's work waits for

    def as_tenant(self, tenant: str) -> "SqliteDriver":
        """The same: a file has no roles, and no second wall."""
        return self

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        found = VERBS[verb]
        rows: Sequence[Row] = await self._ask(
            lambda s: found.run(s, **parameters),
            writes=found.writes,
            page=found.page,
            flushes=not found.may_be_lost or parameters["durable"],
        )
        return rows

    async def call_on(
        self, conn: Any, verb: str, /, *, tell: Iterable[str] = (), **parameters: Any
    ) -> Sequence[Row]:
        self._check()
        if not isinstance(conn, SqliteConnection):
            raise _not_ours(conn)
        if not conn.belongs_to(self._place):
            raise InvalidInput("conn= belongs to another store; take one from this store")
        return await conn.call(VERBS[verb], parameters)

    def call_on_sync(
        self, conn: Any, verb: str, /, *, tell: Iterable[str] = (), **parameters: Any
    ) -> Sequence[Row]:
        raise _not_ours(conn)

    async def get_ready(self) -> None: ...

    @asynccontextmanager
    async def transaction(self, at_most: float = 5.0) -> AsyncIterator[SqliteConnection]:
        """A transaction of yours on the only writer: everyone else waits, so keep it short.

        Leaving the block commits, an error rolls back, and so does staying past `at_most` seconds.
        """
        self._check()
        conn = SqliteConnection(self._ask_within, at_most, self._place)
        try:
            await conn.begin()
            yield conn
        except BaseException:
            await conn.rollback()
            raise
        await conn.commit()

    async def query(self, sql: str) -> tuple[list[str], list[Row]]:
        patience = reading.Patience(self._timeout)
        self._patient.add(patience)
        try:
            found: tuple[list[str], list[Row]] = await self._ask(
                lambda s: reading.query(s.conn, sql, patience), writes=False, page=True
            )
        except asyncio.CancelledError:
            patience.gone = "nobody waits for this query any more"
            raise
        finally:
            self._patient.discard(patience)
        return found

    async def migrate(self) -> int:
        if await self._ask(schema.is_current, writes=False):
            return await self.check()
        version: int = await self._ask(schema.migrate, writes=True)
        return version

    async def check(self) -> int:
        """The schema's version, where it fits this release."""
        version: int = await self._ask(schema.check, writes=False)
        return version

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for patience in list(self._patient):  # other threads may ask, too
            patience.gone = "the store was closed during this query; open a new one, and ask again"
        if os.getpid() != self._pid:
            return
        if self._inline:
            if self._database:
                self._database.close()
            return
        for thread in (self._pages, self._reader, self._writer):
            await thread.close()

    def uuid(self, value: Any) -> UUID:
        return uuid_of(value) if type(value) is bytes else value

    def instant(self, value: Any) -> datetime | None:
        return None if value is None else instant_of(value)

    async def _ask(
        self, work: Work, *, writes: bool, page: bool = False, flushes: bool = True
    ) -> Any:
        self._check()
        if self._inline:
            return self._at_once(work, writes)
        if writes:
            return await self._writer.call(work, flushes=flushes)
        if self._path == MEMORY:
            return await self._writer.call(work, reads=True)
        return await (self._pages if page else self._reader).call(work)

    async def _ask_within(self, work: Callable[[Database], Any], hold: Hold) -> Any:
        self._check()
        if self._inline:
            return work(self._own())
        return await self._writer.call(work, hold=hold)

    def _at_once(self, work: Work, writes: bool) -> Any:
        database = self._own()
        value, error = database.write(lambda: [work])[0] if writes else database.read(work)
        if error:
            raise error
        return value

    def _own(self) -> Database:
        if self._database is None or self._database.closed:
            self._database = self._open()
        return self._database

    def _open(self) -> Database:
        return Database(
            self._path,
            clock=self._clock,
            synchronous=self._synchronous,
            timeout=self._timeout,
        )

    def _check(self) -> None:
        if self._closed:
            raise StoreError("the store is closed; open a new one")
        if os.getpid() != self._pid:
            raise StoreError(
                "this process was forked from the one that opened the store; spawn processes "
                "instead, and open the store in each"
            )


def _not_ours(conn: Any) -> InvalidInput:
    return InvalidInput(
        "on SQLite conn= takes only what `async with app.transaction() as conn:` yields, with "
        f"`await`, not a {type(conn)}: two SQLite libraries on one file drop each other's locks, "
        "and a committed row can be lost"
    )
