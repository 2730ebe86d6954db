"""Connections as applications open them, by every library: each the same few acts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import django  # type: ignore[import-untyped]
import psycopg
import sqlalchemy
from django.conf import settings  # type: ignore[import-untyped]
from django.db.utils import ConnectionHandler  # type: ignore[import-untyped]
from django.utils.connection import ConnectionProxy  # type: ignore[import-untyped]
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import Draft

__all__ = ["AWAITED", "BLOCKING", "Open", "Opened", "django_connection"]


class Opened(Protocol):
    """A connection inside a transaction of its user."""

    conn: Any

    async def execute(self, sql: str) -> Any: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def enqueue(self, store: SqlStore, drafts: list[Draft]) -> list[UUID]: ...


class Awaited:
    """All that is done with it is awaited."""

    def __init__(self, conn: Any, execute: Any, commit: Any, rollback: Any) -> None:
        self.conn = conn
        self._execute, self.commit, self.rollback = execute, commit, rollback

    async def execute(self, sql: str) -> Any:
        return await self._execute(sql)

    async def enqueue(self, store: SqlStore, drafts: list[Draft]) -> list[UUID]:
        return await store.enqueue(drafts, conn=self.conn)


class Blocking:
    """Lives in a thread of its own, without an event loop; tasks are written there too. What some
    libraries hand out means another connection in each thread: it is looked at only there."""

    def __init__(self, do: Callable[..., Awaitable[Any]], conn: Any, execute: Any) -> None:
        self.conn, self._do, self._run = conn, do, execute

    async def execute(self, sql: str) -> Any:
        return await self._do(self._run, sql)

    async def commit(self) -> None:
        await self._do(lambda: self.conn.commit())

    async def rollback(self) -> None:
        await self._do(lambda: self.conn.rollback())

    async def enqueue(self, store: SqlStore, drafts: list[Draft]) -> list[UUID]:
        prepared = await store.prepare(drafts)
        ids: list[UUID] = await self._do(prepared.write, self.conn)
        return ids


Open = Callable[[str], AbstractAsyncContextManager[Opened]]


def _by(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Opened]:
    conn = await asyncpg.connect(url)

    def ends_by(how: str) -> Callable[[], Awaitable[Any]]:
        return lambda: conn.execute(f"{how} and chain")

    await conn.execute("begin")
    yield Awaited(conn, conn.execute, ends_by("commit"), ends_by("rollback"))
    await conn.close()


@asynccontextmanager
async def _psycopg_async(url: str) -> AsyncIterator[Opened]:
    # Cursors of another kind, as an application may have set them.
    async with await psycopg.AsyncConnection.connect(
        url, cursor_factory=psycopg.AsyncRawCursor, row_factory=dict_row
    ) as conn:
        yield Awaited(conn, conn.execute, conn.commit, conn.rollback)


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Opened]:
    async with _thread() as do:
        conn = await do(psycopg.connect, url)
        yield Blocking(do, conn, conn.execute)
        await do(conn.close)


def _sqlalchemy_async_connection(driver: str) -> Open:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Opened]:
        engine = create_async_engine(_by(url, driver))
        async with engine.connect() as conn:
            yield Awaited(conn, conn.exec_driver_sql, conn.commit, conn.rollback)
        await engine.dispose()

    return open


def _sqlalchemy_async_session(driver: str, *, scoped: bool = False) -> Open:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Opened]:
        engine = create_async_engine(_by(url, driver))
        session: Any = AsyncSession(engine)
        if scoped:
            session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)

        async def execute(sql: str) -> Any:
            return await session.execute(sqlalchemy.text(sql))

        yield Awaited(session, execute, session.commit, session.rollback)
        await session.close()
        await engine.dispose()

    return open


@asynccontextmanager
async def _sqlalchemy_connection(url: str) -> AsyncIterator[Opened]:
    async with _thread() as do:
        engine = sqlalchemy.create_engine(_by(url, "psycopg"))
        conn = await do(engine.connect)
        yield Blocking(do, conn, conn.exec_driver_sql)
        await do(conn.close)
        await do(engine.dispose)


def _sqlalchemy_session(*, scoped: bool = False) -> Open:
    @asynccontextmanager
    async def open(url: str) -> AsyncIterator[Opened]:
        async with _thread() as do:
            engine = sqlalchemy.create_engine(_by(url, "psycopg"))
            session: Any = Session(engine)
            if scoped:
                session = scoped_session(sessionmaker(engine))
            yield Blocking(do, session, lambda sql: session.execute(sqlalchemy.text(sql)))
            await do(session.close)
            await do(engine.dispose)

    return open


@asynccontextmanager
async def _django(url: str) -> AsyncIterator[Opened]:
    async with _thread() as do:
        proxy: Any = django_connection(url)
        await do(lambda: proxy.set_autocommit(False))

        def execute(sql: str) -> None:
            with proxy.cursor() as cursor:
                cursor.execute(sql)

        yield Blocking(do, proxy, execute)
        await do(lambda: proxy.close())


def django_connection(url: str) -> ConnectionProxy:
    """What `django.db.connection` is in an application with this database."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": str(parts.port),
    }
    return ConnectionProxy(ConnectionHandler({"default": database}), "default")


@asynccontextmanager
async def _thread() -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        yield lambda work, *values: loop.run_in_executor(thread, work, *values)


AWAITED: dict[str, Open] = {
    "asyncpg": _asyncpg,
    "psycopg-async": _psycopg_async,
    "sqlalchemy-asyncpg-connection": _sqlalchemy_async_connection("asyncpg"),
    "sqlalchemy-asyncpg-session": _sqlalchemy_async_session("asyncpg"),
    "sqlalchemy-asyncpg-scoped": _sqlalchemy_async_session("asyncpg", scoped=True),
    "sqlalchemy-psycopg-async-connection": _sqlalchemy_async_connection("psycopg"),
    "sqlalchemy-psycopg-async-session": _sqlalchemy_async_session("psycopg"),
}
BLOCKING: dict[str, Open] = {
    "psycopg": _psycopg,
    "sqlalchemy-connection": _sqlalchemy_connection,
    "sqlalchemy-session": _sqlalchemy_session(),
    "sqlalchemy-scoped": _sqlalchemy_session(scoped=True),
    "django": _django,
}
