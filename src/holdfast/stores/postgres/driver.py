"""PostgreSQL through asyncpg: verbs by name, each on a connection of the pool."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from copy import copy
from datetime import datetime
from importlib.resources import files
from typing import Any
from uuid import UUID
from weakref import WeakSet

import asyncpg

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.notifier import channel_of
from holdfast.stores import queries
from holdfast.stores.driver import Row
from holdfast.stores.postgres import reading
from holdfast.stores.postgres import schema as schemas
from holdfast.stores.postgres.address import hint_payload, where
from holdfast.stores.postgres.callers.recognise import recognise, recognise_blocking
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.postgres.problems import PROBLEMS, explain, explain_theirs, root_of

__all__ = ["PostgresDriver"]

_HERE = files("holdfast.stores.postgres")
_TRIES = 10
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_BULK = 1000  # from this many rows on, COPY is quicker than a statement with arrays
_NOT_BY_COPY = ("delays", "run_ats", "expires", "keys", "concurrency_keys")
_HOME = """
select
  current_database()::text, to_regclass($1::text)::oid,
  has_function_privilege('pg_control_system()', 'execute')
"""
# Two servers that were set up alike may number their tables alike. Asked apart: where it is not
# allowed, the caller's transaction would fail.
_SERVER = "select system_identifier from pg_control_system()"
# For this transaction only: behind a pooler the next one on this session may be anybody's.
_WHOSE = "select set_config('holdfast.tenant', $1::text, true)"
# What the wall asks for each row looks costly: compiling it takes longer than running it.
_OURS = "select set_config('holdfast.tenant', $1::text, true), set_config('jit', 'off', true)"
_ROLLBACK = 5.0
_STOPPED = 5.0  # for the server to say that it has stopped a query


class PostgresDriver:
    """One schema of one database. `timeout`: seconds that a call may take, the wait for a free
    connection included. `transactions`: how many connections `transaction()` may open, apart from
    the `connections` of all other calls."""

    one_writer = False

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        connections: int = 8,
        public_views: bool = True,
        timeout: float = 30.0,
        transactions: int = 8,
    ) -> None:
        for what, number in (("connections", connections), ("transactions", transactions)):
            if type(number) is not int or not 1 <= number <= 1000:
                raise InvalidInput(f"{what} must be from 1 to 1000, got {number!r:.80}")
        self.schema = schemas.check_schema(schema)
        self._public_views = public_views
        self._timeout = timeout
        self._where = where(url)
        self._pool = Pool(url, connections)
        self._apart = Pool(url, transactions)
        self._home: Row = None
        self._tenant: str | None = None
        self._is_doubtful = False
        self._neighbours: WeakSet[Any] = WeakSet()  # callers' connections that lead to our home
        self._statements = {
            verb: queries.numbered(schemas.localised(sql, schema))
            for verb, sql in queries.load(_HERE).items()
        }

    def as_tenant(self, tenant: str) -> "PostgresDriver":
        """The same connections, but each transaction says whose it is."""
        driver = copy(self)
        driver._tenant = tenant
        return driver

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        by_copy = verb == "accept" and self._tenant is None and _fits_copy(parameters)
        run = self._copy if by_copy else self._fetch
        pool, clock = self._pool, asyncio.get_running_loop().time
        over = clock() + self._patience(verb, parameters)
        for tried in range(_TRIES):
            try:
                conn = pool.at_hand() or await pool.lend(over - clock())
                try:
                    rows = await run(conn, verb, parameters, over - clock())
                except BaseException as error:
                    pool.take_back(conn, error)
                    raise
                pool.take_back(conn)
                return rows
            except PROBLEMS as error:
                if not isinstance(error, _AGAIN) or tried == _TRIES - 1:
                    raise explain(error, self.schema, self._where) from error
            await asyncio.sleep(random.random() * 0.002 * 2**tried)
        raise AssertionError("unreachable")

    async def call_on(
        self, conn: Any, verb: str, /, *, tell: Iterable[str] = (), **parameters: Any
    ) -> Sequence[Row]:
        self._pool.check()
        theirs = recognise(conn)
        with self._explained_theirs():
            raw = await theirs.raw()
            if raw not in self._neighbours:
                found = await self._locate(theirs.fetch)
                if not _same(found, self._home):
                    await self._learn_home()
                self._check_neighbour(raw, found)
            statement, values = self._telling(verb, parameters, tell)
            if self._tenant is not None:
                await theirs.fetch(_WHOSE, self._tenant)
            return await theirs.fetch(statement, *values)

    def call_on_sync(
        self, conn: Any, verb: str, /, *, tell: Iterable[str] = (), **parameters: Any
    ) -> Sequence[Row]:
        theirs = recognise_blocking(conn)
        with self._explained_theirs():
            raw = theirs.raw()
            if raw not in self._neighbours:
                ((name, table, may_ask),) = theirs.fetch(_HOME, self._place)
                server = theirs.fetch(_SERVER)[0][0] if may_ask else None
                self._check_neighbour(raw, (name, table, server))
            statement, values = self._telling(verb, parameters, tell)
            if self._tenant is not None:
                theirs.fetch(_WHOSE, self._tenant)
            return theirs.fetch(statement, *values)

    async def get_ready(self) -> None:
        if self._home is None or self._is_doubtful:
            with self._explained(explain):
                await self._learn_home()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A transaction of yours, on a connection of ours that no other call waits for.

        Leaving the block commits, an error rolls back. What your own statements raise is asyncpg's.
        Its isolation level is read committed, whatever the database's default.
        """
        self._pool.check()
        async with AsyncExitStack() as stack:
            with self._explained(explain):
                conn = await stack.enter_async_context(self._apart.connection(self._timeout))
                transaction = conn.transaction(isolation="read_committed")
                async with asyncio.timeout(self._timeout):
                    await transaction.start()
                    if self._tenant is not None:
                        await conn.execute(_WHOSE, self._tenant)
            try:
                yield conn
                with self._explained(explain_theirs):
                    async with asyncio.timeout(self._timeout):
                        await conn.execute("select 1")  # a failed one would "commit" in silence
                        await transaction.commit()
            except BaseException:
                with suppress(*PROBLEMS):
                    async with asyncio.timeout(_ROLLBACK):
                        await transaction.rollback()
                conn.terminate()  # nobody knows what it was left with
                raise
            try:
                await conn.reset(timeout=_ROLLBACK)
            except PROBLEMS:
                conn.terminate()

    async def query(self, sql: str) -> tuple[list[str], list[Row]]:
        with self._explained(explain):
            async with (
                self._apart.connection(self._timeout) as conn,
                asyncio.timeout(self._timeout + _STOPPED),
            ):
                return await reading.query(conn, self.schema, sql, self._timeout, self._tenant)

    async def migrate(self) -> int:
        with self._explained(explain):
            async with self._pool.connection(self._timeout) as conn:
                return await schemas.migrate(conn, self.schema, public_views=self._public_views)

    async def check(self) -> int:
        """The schema's version, where it fits this release."""
        with self._explained(explain):
            async with self._pool.connection(self._timeout) as conn:
                return await schemas.check(conn, self.schema)

    async def close(self) -> None:
        await self._pool.close()
        await self._apart.close()

    def uuid(self, value: Any) -> UUID:
        return value  # type: ignore[no-any-return]

    def instant(self, value: Any) -> datetime | None:
        return value  # type: ignore[no-any-return]

    async def _fetch(
        self, conn: asyncpg.Connection, verb: str, parameters: dict[str, Any], within: float | None
    ) -> Sequence[Row]:
        statement, names = self._statements[verb]
        values = map(parameters.__getitem__, names)
        if not self._pool.must_ask and self._tenant is None:
            return await conn.fetch(statement, *values, timeout=within)
        async with asyncio.timeout(within), _begun(conn):
            if self._tenant is not None:
                await conn.execute(_OURS, self._tenant)
            rows: Sequence[Row] = await conn.fetch(statement, *values)
            return rows

    async def _copy(
        self, conn: asyncpg.Connection, _: str, parameters: dict[str, Any], within: float
    ) -> Sequence[Row]:
        """The same as `accept`, for many plain tasks."""
        task = {"id": "ids", "lane": "lanes", "np": "nps", "payload": "payloads"}
        task |= {"max_tries": "max_tries", "policy": "policies", "parent": "parents"}
        task |= {"user_id": "user_ids"}
        ready = {"id": "ids", "lane": "lanes", "np": "nps", "child": "children"}
        parents = parameters["parents"]
        given = {**parameters, "children": parents and [p is not None for p in parents]}
        async with asyncio.timeout(within), _begun(conn):
            for table, columns in (("task", task), ("ready", ready)):
                filled = {column: given[name] for column, name in columns.items() if given[name]}
                await conn.copy_records_to_table(
                    table,
                    schema_name=self.schema,
                    columns=list(filled),
                    records=zip(*filled.values(), strict=True),
                )
        return [(None, None, None)]

    def _patience(self, verb: str, parameters: dict[str, Any]) -> float:
        """A renewal that comes late is no use: whoever asks must have time to stop the work."""
        match verb:
            case "renew":
                return min(self._timeout, float(parameters["lease"]) / 3)
            case "accept":
                return self._timeout * (1 + len(parameters["ids"]) // 10_000)
            case _:
                return self._timeout

    def _telling(
        self, verb: str, parameters: dict[str, Any], tell: Iterable[str]
    ) -> tuple[str, list[Any]]:
        """The verb's statement and values; it sends hints too, when the transaction commits."""
        statement, names = self._statements[verb]
        values = [parameters[name] for name in names]
        if hints := hint_payload(tell):
            place = len(names) + 1
            statement = (
                f"select said.*, pg_notify(${place}::text, ${place + 1}::text)\n"
                f"from (\n{statement}\n) said"
            )
            values += [channel_of(self.schema), hints]
        return statement, values

    @property
    def _place(self) -> str:
        return f'"{self.schema}".task'

    async def _learn_home(self) -> None:
        async with self._pool.connection(self._timeout) as ours, asyncio.timeout(self._timeout):
            self._home = await self._locate(ours.fetch)
        self._is_doubtful = False

    async def _locate(self, fetch: Callable[..., Awaitable[Sequence[Row]]]) -> Row:
        """The database's name, the number of our table in it, and that of the server, if we may
        know it."""
        ((name, table, may_ask),) = await fetch(_HOME, self._place)
        server = (await fetch(_SERVER))[0][0] if may_ask else None
        return name, table, server

    def _check_neighbour(self, raw: Any, found: Row) -> None:
        """Once for each connection: a task that went into another database would be lost."""
        if not _same(found, self._home):
            self._is_doubtful = True  # the schema may have been made anew: look the next time
            raise InvalidInput(
                f"conn= is connected to the database {found[0]!r}, where the schema "
                f"{self.schema!r} of this store is not; connect it to {self._where}"
            )
        self._neighbours.add(raw)

    @contextmanager
    def _explained_theirs(self) -> Iterator[None]:
        """The errors of the caller's library in our own words. The cause is the driver's error:
        around it some libraries put the values that were asked for."""
        try:
            yield
        except HoldfastError:
            raise
        except Exception as error:
            found = root_of(error)
            if found is None:
                raise
            cause, root = found
            raise explain_theirs(root, self.schema, self._where) from cause

    @contextmanager
    def _explained(self, how: Callable[[Exception, str, str], Exception]) -> Iterator[None]:
        """asyncpg's errors in our own words."""
        try:
            yield
        except PROBLEMS as error:
            raise how(error, self.schema, self._where) from error


@asynccontextmanager
async def _begun(conn: asyncpg.Connection) -> AsyncIterator[None]:
    """Not by `conn.transaction()`: its rollback would wait without end for an answer."""
    await conn.execute("begin isolation level read committed")
    try:
        yield
    except asyncpg.PostgresError:
        await conn.execute("rollback")
        raise
    await conn.execute("commit")


def _same(found: Row, home: Row) -> bool:
    """Whether both are the same place, where a store is."""
    if home is None or home[1] is None or found[:2] != home[:2]:
        return False
    return found[2] is None or home[2] is None or bool(found[2] == home[2])


def _fits_copy(parameters: dict[str, Any]) -> bool:
    plain = all(parameters[name] is None for name in _NOT_BY_COPY)
    return plain and len(parameters["ids"]) >= _BULK
