"""Which library a connection is of. What is not recognised is refused."""

from typing import Any

import asyncpg

from holdfast.errors import InvalidInput
from holdfast.stores.postgres.callers.asyncpg import Asyncpg
from holdfast.stores.postgres.callers.caller import (
    BlockingCaller,
    Caller,
    Here,
    InThread,
    is_a,
)
from holdfast.stores.postgres.callers.django import Django
from holdfast.stores.postgres.callers.psycopg import AsyncPsycopg, Psycopg
from holdfast.stores.postgres.callers.sqlalchemy import AsyncSqlalchemy, Sqlalchemy

__all__ = ["recognise", "recognise_blocking"]


def recognise(conn: Any) -> Caller:
    """For `await`: also a connection that blocks."""
    found = _awaited(conn) or _blocking(conn)
    match found:
        case None:
            raise _unknown(conn)
        case Django():
            return Here(found)
        case Sqlalchemy() if found.awaits:
            raise InvalidInput(
                f"conn= is the inner {type(conn).__name__} of an asynchronous one; pass the "
                "AsyncSession or AsyncConnection itself"
            )
        case Psycopg() | Sqlalchemy():
            return InThread(found)
        case _:
            return found


def recognise_blocking(conn: Any) -> BlockingCaller:
    """For callers that cannot await."""
    found = _blocking(conn)
    if found is None:
        if _awaited(conn) is None:
            raise _unknown(conn)
        raise InvalidInput(
            f"{_name(conn)} has to be awaited: `await store.enqueue(drafts, conn=conn)`; `write` "
            "takes connections that block"
        )
    return found


def _awaited(conn: Any) -> Asyncpg | AsyncPsycopg | AsyncSqlalchemy | None:
    if isinstance(conn, asyncpg.Connection):
        return Asyncpg(conn)
    if is_a(conn, "psycopg", "AsyncConnection"):
        return AsyncPsycopg(conn)
    if is_a(conn, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        conn = conn()
    if is_a(conn, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession"):
        return AsyncSqlalchemy(conn)
    return None


def _blocking(conn: Any) -> Psycopg | Sqlalchemy | Django | None:
    if is_a(conn, "psycopg", "Connection"):
        return Psycopg(conn)
    if is_a(conn, "sqlalchemy.orm", "scoped_session"):
        conn = conn()  # here, since it means another session in another thread
    if is_a(conn, "sqlalchemy.orm", "Session") or is_a(conn, "sqlalchemy.engine", "Connection"):
        return Sqlalchemy(conn)
    if is_a(conn, "django.utils.connection", "ConnectionProxy"):
        conn = conn._connections[conn._alias]  # what it stands for in this thread
    if is_a(conn, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return Django(conn)
    return None


def _unknown(conn: Any) -> InvalidInput:
    return InvalidInput(
        f"conn= is {_name(conn)}, which cannot be used; pass a connection to the same PostgreSQL "
        "database by asyncpg, psycopg 3, SQLAlchemy (a connection or session by asyncpg or "
        "psycopg) or Django"
    )


def _name(conn: Any) -> str:
    kind = type(conn)
    return f"a {kind.__module__}.{kind.__qualname__}"
