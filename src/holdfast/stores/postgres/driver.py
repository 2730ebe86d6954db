"""PostgreSQL through asyncpg: verbs by name, and what its errors mean."""

import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg

from holdfast.errors import (
    InvalidInput,
    SchemaMismatch,
    StoreError,
    StoreUnreachable,
)
from holdfast.stores import migrations, queries
from holdfast.stores.driver import DuplicateTask, MisplacedTask, Row
from holdfast.stores.postgres.pool import Pool

__all__ = ["PostgresDriver"]

_HERE = files("holdfast.stores.postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_OLDEST = 150_000
_TRIES = 10
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_GONE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
)
_SHUT_OUT = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_MIGRATED = """
select m.version, m.fits
from holdfast.migration m
order by m.version desc
limit 1
"""


class PostgresDriver:
    """One schema of one database."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        connections: int = 8,
        public_views: bool = True,
    ) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise InvalidInput(
                f"schema {schema!r} is not a name: use lower-case letters, digits and _, at most 41"
            )
        self.schema = schema
        self._public_views = public_views
        self._where = _without_secrets(url)
        self._pool = Pool(url, connections)
        self._statements = {
            verb: queries.numbered(self._localised(sql))
            for verb, sql in queries.load(_HERE).items()
        }

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        statement, names = self._statements[verb]
        values = [parameters[name] for name in names]
        for tried in range(_TRIES):
            with self._explained():
                try:
                    async with self._pool.connection() as conn:
                        return await conn.fetch(statement, *values)
                except _AGAIN:
                    if tried == _TRIES - 1:
                        raise
            await asyncio.sleep(random.random() * 0.002 * 2**tried)
        raise AssertionError("unreachable")

    async def call_on(self, conn: Any, verb: str, /, **parameters: Any) -> Sequence[Row]:
        if not isinstance(conn, asyncpg.Connection):
            raise InvalidInput(
                f"conn= takes an asyncpg connection to the same database, not a {type(conn)}"
            )
        statement, names = self._statements[verb]
        return await conn.fetch(statement, *(parameters[name] for name in names))

    async def migrate(self) -> int:
        with self._explained():
            async with self._pool.connection() as conn:
                return await self._migrate(conn)

    async def check(self) -> int:
        """The schema's version, where it fits this release."""
        with self._explained():
            async with self._pool.connection() as conn:
                found = await self._migrated(conn)
        return migrations.check(found, _HERE)

    async def close(self) -> None:
        await self._pool.close()

    def uuid(self, value: Any) -> UUID:
        return value  # type: ignore[no-any-return]

    def instant(self, value: Any) -> datetime | None:
        return value  # type: ignore[no-any-return]

    async def _migrate(self, conn: asyncpg.Connection) -> int:
        if (
            conn.get_server_version()
            and int(await conn.fetchval("show server_version_num")) < _OLDEST
        ):
            raise SchemaMismatch(
                f"PostgreSQL at {self._where} is older than version 15; use 15 or newer"
            )
        # Looked at without the lock first: the usual start has nothing to do and waits for nobody.
        if (found := await self._migrated(conn)) and not migrations.pending(found, _HERE):
            return migrations.check(found, _HERE)
        async with conn.transaction():
            # The lock ends with the transaction, so it also holds behind a pooler.
            await conn.execute(f"select pg_advisory_xact_lock(hashtext('holdfast:{self.schema}'))")
            await conn.execute(f"create schema if not exists {self.schema}")
            found = await self._migrated(conn)
            for migration in migrations.pending(found, _HERE):
                await conn.execute(self._localised(migration.sql))
                await conn.execute(
                    self._localised("insert into holdfast.migration values ($1, $2, $3, now())"),
                    migration.version,
                    migration.name,
                    migration.fits,
                )
            if self._public_views:
                await self._publish(conn)
            return migrations.check(await self._migrated(conn), _HERE)

    async def _migrated(self, conn: asyncpg.Connection) -> tuple[int, int] | None:
        known = await conn.fetchval("select to_regclass($1)::text", f"{self.schema}.migration")
        row = await conn.fetchrow(self._localised(_MIGRATED)) if known else None
        return (row["version"], row["fits"]) if row else None

    async def _publish(self, conn: asyncpg.Connection) -> None:
        """The views for people also in `public`, where the name is free."""
        for (view,) in await conn.fetch(
            "select viewname from pg_views where schemaname = $1 order by 1", self.schema
        ):
            if await conn.fetchval("select to_regclass($1)::text", f"public.{view}") is None:
                await conn.execute(
                    f"create view public.{view} with (security_invoker = true) as "  # noqa: S608
                    f"select * from {self.schema}.{view}"
                )

    def _localised(self, sql: str) -> str:
        """The files say `holdfast.`; the schema may have another name."""
        return sql if self.schema == "holdfast" else re.sub(r"\bholdfast\.", f"{self.schema}.", sql)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """asyncpg's errors in our own words."""
        try:
            yield
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name == "task_pkey":
                raise DuplicateTask from error
            if error.constraint_name in ("lease_pkey", "later_pkey", "outcome_pkey"):
                raise MisplacedTask(error.detail) from error
            raise StoreError(str(error)) from error
        except asyncpg.UndefinedTableError as error:
            raise SchemaMismatch(
                f"the schema {self.schema!r} at {self._where} is not set up: {error}. "
                "Run `await store.migrate()` first"
            ) from error
        except _SHUT_OUT as error:
            raise StoreUnreachable(
                f"PostgreSQL at {self._where} does not let us in: {error}. "
                "Check user, password and database in the store's URL"
            ) from error
        except _GONE as error:
            raise StoreUnreachable(
                f"PostgreSQL at {self._where} does not answer: {str(error) or type(error).__name__}. "
                "Check that the server runs and that host and port in the store's URL are right"
            ) from error


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
