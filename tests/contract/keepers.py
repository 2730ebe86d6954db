"""Who keeps the store's promise: one database each, emptied between tests, with a movable clock."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid4

import asyncpg

from holdfast.clock import ManualClock
from holdfast.stores.driver import Driver
from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver

__all__ = ["Dump", "Keeper", "PostgresKeeper", "SqliteKeeper"]

Dump = dict[str, list[str]]  # all rows of all tables, as text


class Keeper(Protocol):
    """What a test may do with a database besides the store's verbs."""

    @property
    def dialect(self) -> str: ...

    @property
    def driver(self) -> Driver: ...

    def store(self) -> SqlStore:
        """A store as a process that just started has it: it remembers nothing."""
        ...

    async def aclose(self) -> None: ...

    async def empty(self) -> None:
        """As after the migration, with the clock at the present."""
        ...

    async def advance(self, seconds: float) -> None: ...

    async def dump(self) -> Dump: ...

    async def peek(self, sql: str) -> list[tuple[Any, ...]]:
        """Any statement, as somebody at a SQL prompt would write it."""
        ...

    def literal(self, id: UUID) -> str:
        """An id as a statement for `peek` writes it."""
        ...

    def shown(self, id: UUID) -> str:
        """An id as `dump` shows it."""
        ...

    def transaction(self, *, keep: bool) -> AbstractAsyncContextManager[Any]:
        """A connection of the caller's inside a transaction that commits, or does not."""
        ...

    def elsewhere(self) -> AbstractAsyncContextManager["Keeper"]:
        """Another, empty place of the same kind, where nothing is set up."""
        ...


class PostgresKeeper:
    """A schema of its own; `url` may lead through a pooler, `direct` does not."""

    dialect = "postgres"

    def __init__(self, url: str, direct: str, schema: str) -> None:
        self.url, self.direct = url, direct
        self.schema = schema
        self.driver = PostgresDriver(url, schema=schema, public_views=False)
        self._prompt: asyncpg.Connection | None = None
        self._empty = ""
        self._dump = ""

    @classmethod
    async def open(cls, url: str, direct: str, schema: str = "contract") -> "PostgresKeeper":
        keeper = cls(url, direct, schema)
        await keeper.driver.migrate()
        await keeper.prepare()
        return keeper

    async def prepare(self) -> None:
        """Put a clock in that stands still until it is moved."""
        prompt = await self._connect_directly()
        await prompt.execute(
            f"""
            create table {self.schema}.test_clock (at timestamptz not null);
            insert into {self.schema}.test_clock values (clock_timestamp());
            create or replace function {self.schema}.clock() returns timestamptz
            language sql as 'select at from {self.schema}.test_clock';
            create or replace function {self.schema}.statement_clock() returns timestamptz
            stable language sql as 'select at from {self.schema}.test_clock';
            """
        )
        tables = [
            name
            for (name,) in await self.peek(
                f"select tablename::text from pg_tables where schemaname = '{self.schema}' "
                "and tablename not in ('migration', 'test_clock') order by 1"
            )
        ]
        self._dump = " union all ".join(f"select '{t}', t::text from {t} t" for t in tables)
        self._empty = "".join(f"delete from {t};" for t in tables if t != "lane_change")
        self._empty = (
            _FORGETTABLE
            + self._empty
            + (
                "select setval('place', 1, false), setval('event', 1, false);"
                "update test_clock set at = clock_timestamp();"
            )
        )

    def store(self) -> SqlStore:
        return SqlStore(self.driver)

    async def aclose(self) -> None:
        await self.driver.close()
        if self._prompt is not None:
            await self._prompt.close()

    async def empty(self) -> None:
        prompt = await self._connect_directly()
        await prompt.execute(self._empty)

    async def advance(self, seconds: float) -> None:
        await self.peek(f"update test_clock set at = at + make_interval(secs => {seconds!r})")

    async def dump(self) -> Dump:
        found: Dump = {}
        for table, row in await self.peek(self._dump):
            found.setdefault(table, []).append(row)
        return {table: sorted(rows) for table, rows in sorted(found.items())}

    async def peek(self, sql: str) -> list[tuple[Any, ...]]:
        prompt = await self._connect_directly()
        return [tuple(row) for row in await prompt.fetch(sql)]

    def literal(self, id: UUID) -> str:
        return f"'{id}'::uuid"

    def shown(self, id: UUID) -> str:
        return str(id)

    @asynccontextmanager
    async def transaction(self, *, keep: bool) -> AsyncIterator[asyncpg.Connection]:
        conn = await asyncpg.connect(self.url, statement_cache_size=0)
        try:
            transaction = conn.transaction(isolation="read_committed")
            await transaction.start()
            try:
                yield conn
            except BaseException:
                await transaction.rollback()
                raise
            await (transaction.commit() if keep else transaction.rollback())
        finally:
            await conn.close()

    @asynccontextmanager
    async def elsewhere(self) -> AsyncIterator["PostgresKeeper"]:
        keeper = PostgresKeeper(self.url, self.direct, f"elsewhere_{uuid4().hex[:8]}")
        try:
            yield keeper
        finally:
            await keeper.peek(f"drop schema if exists {keeper.schema} cascade")
            await keeper.aclose()

    async def _connect_directly(self) -> asyncpg.Connection:
        if self._prompt is None or self._prompt.is_closed():  # a storm may have crashed the server
            self._prompt = await asyncpg.connect(
                self.direct,
                server_settings={
                    "search_path": self.schema,
                    "client_min_messages": "warning",
                    "jit": "off",
                },
            )
        return self._prompt


class SqliteKeeper:
    """A file, on threads; or memory, without them."""

    dialect = "sqlite"

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.clock = ManualClock()
        self.driver = SqliteDriver(
            path or ":memory:", clock=self.clock, synchronous="normal", inline=path is None
        )

    @classmethod
    async def open(cls, path: Path | None) -> "SqliteKeeper":
        keeper = cls(path)
        await keeper.driver.migrate()
        return keeper

    def store(self) -> SqlStore:
        return SqlStore(self.driver)

    async def aclose(self) -> None:
        await self.driver.close()

    async def empty(self) -> None:
        tables = await self._tables()
        async with self.driver.transaction() as conn:
            await conn.execute(_FORGETTABLE)
            for table in tables:
                if table not in ("lane_change", "counter"):
                    await conn.execute(f"delete from {table}")
            await conn.execute("update counter set value = 0")

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def dump(self) -> Dump:
        # counter: what sequences are elsewhere; a number that was passed over is no change
        tables = [table for table in await self._tables() if table != "counter"]
        return {
            table: sorted(" ".join(map(_text, row)) for row in rows)
            for table in tables
            if (rows := await self.peek(f"select * from {table}"))
        }

    async def peek(self, sql: str) -> list[tuple[Any, ...]]:
        async with self.driver.transaction() as conn:
            return await conn.execute(sql)

    def literal(self, id: UUID) -> str:
        return f"x'{id.hex}'"

    def shown(self, id: UUID) -> str:
        return id.hex

    @asynccontextmanager
    async def transaction(self, *, keep: bool) -> AsyncIterator[Any]:
        with suppress(_Undone):
            async with self.driver.transaction() as conn:
                yield conn
                if not keep:
                    raise _Undone

    @asynccontextmanager
    async def elsewhere(self) -> AsyncIterator["SqliteKeeper"]:
        beside = self._path and self._path.with_name(f"elsewhere-{uuid4().hex[:8]}.db")
        keeper = SqliteKeeper(beside)
        try:
            yield keeper
        finally:
            await keeper.aclose()

    async def _tables(self) -> list[str]:
        found = await self.peek(
            "select name from sqlite_schema where type = 'table' "
            "and name <> 'migration' and name not like 'sqlite_%' order by 1"
        )
        return [name for (name,) in found]


# The audit log only grows, but for what cleanup has marked.
_FORGETTABLE = "insert into reached (name, seq) values ('audit', 9000000000000000000) "
_FORGETTABLE += "on conflict (name) do update set seq = excluded.seq;"


class _Undone(Exception):
    """Rolls a transaction back."""


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
