"""PostgreSQL through asyncpg: verbs by name, each on a connection of the pool."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.resources import files
from typing import Any
from uuid import UUID
from weakref import WeakSet

import asyncpg

from holdfast.errors import InvalidInput
from holdfast.stores import queries
from holdfast.stores.driver import Row
from holdfast.stores.postgres import schema as schemas
from holdfast.stores.postgres.address import where
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.postgres.problems import PROBLEMS, explain, explain_theirs

__all__ = ["PostgresDriver"]

_HERE = files("holdfast.stores.postgres")
_TRIES = 10
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_BULK = 1000  # from this many rows on, COPY is quicker than a statement with arrays
_NOT_BY_COPY = ("delays", "run_ats", "expires", "keys", "concurrency_keys")
_HOME = "select current_database(), to_regclass($1)::oid"


class PostgresDriver:
    """One schema of one database. `timeout`: seconds that a call may take, the wait for a free
    connection included."""

    one_writer = False

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        connections: int = 8,
        public_views: bool = True,
        timeout: float = 30.0,
    ) -> None:
        if type(connections) is not int or not 1 <= connections <= 1000:
            raise InvalidInput(f"connections must be from 1 to 1000, got {connections!r:.80}")
        self.schema = schemas.check_schema(schema)
        self._public_views = public_views
        self._timeout = timeout
        self._where = where(url)
        self._pool = Pool(url, connections)
        self._home: Row = None
        self._neighbours: WeakSet[Any] = WeakSet()  # callers' connections that lead to our home
        self._statements = {
            verb: queries.numbered(schemas.localised(sql, schema))
            for verb, sql in queries.load(_HERE).items()
        }

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        run = self._copy if verb == "accept" and _fits_copy(parameters) else self._fetch
        loop = asyncio.get_running_loop()
        over = loop.time() + self._patience(verb, parameters)
        for tried in range(_TRIES):
            with self._explained(explain):
                try:
                    async with self._pool.connection(over - loop.time()) as conn:
                        return await run(conn, verb, parameters, over - loop.time())
                except _AGAIN:
                    if tried == _TRIES - 1:
                        raise
            await asyncio.sleep(random.random() * 0.002 * 2**tried)
        raise AssertionError("unreachable")

    async def call_on(self, conn: Any, verb: str, /, **parameters: Any) -> Sequence[Row]:
        self._pool.check()
        if not isinstance(conn, asyncpg.Connection):
            raise InvalidInput(
                f"conn= takes an asyncpg connection to the same database, not a {type(conn)}"
            )
        with self._explained(explain_theirs):
            await self._check_neighbour(conn)
            return await self._fetch(conn, verb, parameters, None)

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

    def uuid(self, value: Any) -> UUID:
        return value  # type: ignore[no-any-return]

    def instant(self, value: Any) -> datetime | None:
        return value  # type: ignore[no-any-return]

    async def _fetch(
        self, conn: asyncpg.Connection, verb: str, parameters: dict[str, Any], within: float | None
    ) -> Sequence[Row]:
        statement, names = self._statements[verb]
        values = (parameters[name] for name in names)
        return await conn.fetch(statement, *values, timeout=within)

    async def _copy(
        self, conn: asyncpg.Connection, _: str, parameters: dict[str, Any], within: float
    ) -> Sequence[Row]:
        """The same as `accept`, for many plain tasks."""
        task = {"id": "ids", "lane": "lanes", "np": "nps", "payload": "payloads"}
        task |= {"max_tries": "max_tries", "policy": "policies", "parent": "parents"}
        ready = {"id": "ids", "lane": "lanes", "np": "nps", "child": "children"}
        parents = parameters["parents"]
        given = {**parameters, "children": parents and [p is not None for p in parents]}
        async with asyncio.timeout(within):
            # Not by `conn.transaction()`: its rollback would wait without end for an answer.
            await conn.execute("begin")
            try:
                for table, columns in (("task", task), ("ready", ready)):
                    filled = {
                        column: given[name] for column, name in columns.items() if given[name]
                    }
                    await conn.copy_records_to_table(
                        table,
                        schema_name=self.schema,
                        columns=list(filled),
                        records=zip(*filled.values(), strict=True),
                    )
            except asyncpg.PostgresError:
                await conn.execute("rollback")
                raise
            await conn.execute("commit")
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

    async def _check_neighbour(self, conn: asyncpg.Connection) -> None:
        """Once for each connection: a task that went into another database would be lost."""
        real = getattr(conn, "_con", None) or conn  # a pool lends a new cover each time
        if real in self._neighbours:
            return
        place = f'"{self.schema}".task'
        (theirs,) = await conn.fetch(_HOME, place)
        if theirs != self._home:
            async with self._pool.connection(self._timeout) as ours:
                (self._home,) = await ours.fetch(_HOME, place, timeout=self._timeout)
        if theirs != self._home:
            raise InvalidInput(
                f"conn= is connected to the database {theirs[0]!r}, where the schema "
                f"{self.schema!r} of this store is not; connect it to {self._where}"
            )
        self._neighbours.add(real)

    @contextmanager
    def _explained(self, how: Callable[[Exception, str, str], Exception]) -> Iterator[None]:
        """asyncpg's errors in our own words."""
        try:
            yield
        except PROBLEMS as error:
            raise how(error, self.schema, self._where) from error


def _fits_copy(parameters: dict[str, Any]) -> bool:
    plain = all(parameters[name] is None for name in _NOT_BY_COPY)
    return plain and len(parameters["ids"]) >= _BULK
