"""What PostgreSQL's and asyncpg's errors mean, in our own words."""

from collections.abc import Iterator
from typing import Any

import asyncpg

from holdfast.errors import InvalidInput, SchemaMismatch, StoreError, StoreUnreachable
from holdfast.stores.driver import DuplicateTask, MisplacedTask
from holdfast.stores.postgres.callers.caller import is_a

__all__ = ["PROBLEMS", "explain", "explain_theirs", "root_of", "said"]

PROBLEMS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

_PLACES = ("lease_pkey", "later_pkey", "outcome_pkey")
_NOT_SET_UP = (
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedTableError,
)
_SHUT_OUT = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_GONE = ("57P01", "57P02", "57P03", "57P05", "53300")
_WAYS_OUT = {
    "25006": "only reading is allowed there: it is a standby, or default_transaction_read_only is "
    "on. Use the primary; with several hosts, target_session_attrs=read-write finds it",
    "25P02": "the transaction has failed before; roll it back and begin again",
    "2BP01": "something else depends on Holdfast's views; drop it, and make it again afterwards",
    "40001": "others were quicker again and again; ask again, or with fewer at once",
    "40P01": "others were quicker again and again; ask again, or with fewer at once",
    "42501": "this role lacks a right; grant it usage on the schema, select, insert, update and "
    "delete on its tables and usage on its sequences, or connect as the schema's owner",
    "53100": "the server's disk is full and nothing was written; make room on it",
    "55P03": "somebody holds a lock for longer than lock_timeout; end that transaction, or raise "
    "lock_timeout for this role",
    "57014": "the statement was cancelled, by statement_timeout or by an operator; raise "
    "statement_timeout for this role, and ask again",
}


def explain(error: Exception, schema: str, where: str) -> Exception:
    """The error to raise instead."""
    match error:
        case asyncpg.UniqueViolationError():
            return _unique(error, where)
        case asyncpg.DataError():
            return InvalidInput(f"PostgreSQL cannot hold such a value: {said(error)}")
        case asyncpg.InterfaceError() if isinstance(error, ValueError):
            return InvalidInput(f"PostgreSQL cannot be asked this: {said(error)}")
        case asyncpg.PostgresError() if isinstance(error, _NOT_SET_UP):
            return SchemaMismatch(
                f"the schema {schema!r} at {where} is not set up: {said(error)}. "
                "Run `await store.migrate()` first"
            )
        case asyncpg.PostgresError() if isinstance(error, _SHUT_OUT):
            return StoreUnreachable(
                f"PostgreSQL at {where} does not let us in: {said(error)}. "
                "Check user, password and database in the store's URL"
            )
        case asyncpg.PostgresError() if not _is_gone(error):
            way_out = _WAYS_OUT.get(error.sqlstate or "", "see the server's log")
            return StoreError(f"PostgreSQL at {where} says: {said(error)}: {way_out}")
        case TimeoutError():
            return StoreUnreachable(
                f"PostgreSQL at {where} did not answer in time; what was asked for may or may not "
                "have been done. Check that the server runs, and whether a lock is held for long"
            )
        case asyncpg.OutdatedSchemaCacheError() | asyncpg.ProtocolError():
            return StoreError(f"PostgreSQL at {where} cannot be understood: {said(error)}")
        case _:
            return StoreUnreachable(
                f"PostgreSQL at {where} does not answer: {type(error).__name__}: "
                f"{said(error):.200}. Check that the server runs and that host and port in the "
                "store's URL are right"
            )


def explain_theirs(error: Exception, schema: str, where: str) -> Exception:
    """The same for a caller's connection, where it is up to the caller to begin again."""
    match error:
        case asyncpg.SerializationError() | asyncpg.DeadlockDetectedError():
            return StoreError(
                f"another transaction was quicker ({said(error)}); begin the transaction again, or "
                "use read committed, where one waits for the other"
            )
        case asyncpg.InterfaceError() if not isinstance(error, ValueError):
            return StoreError(f"conn= cannot be used now: {said(error)}")
        case _:
            return explain(error, schema, where)


def root_of(error: Exception) -> tuple[Exception, Exception] | None:
    """What the driver said that a caller's library raised this for, and the same as asyncpg would
    put it. None: it is of no database."""
    for cause in _causes(error):
        if isinstance(cause, PROBLEMS):
            return cause, cause
        if is_a(cause, "psycopg", "Error"):
            return cause, _as_asyncpg(cause)
    if type(error).__module__.partition(".")[0] in ("sqlalchemy", "django"):
        return error, asyncpg.InterfaceError(said(error))
    return None


def said(error: BaseException) -> str:
    """The error's own words, without the rows that PostgreSQL adds to them."""
    return str(error.args[0]) if error.args and isinstance(error.args[0], str) else str(error)


def _causes(error: BaseException | None) -> Iterator[Exception]:
    while isinstance(error, Exception):
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _as_asyncpg(error: Any) -> Exception:
    if error.sqlstate is None:
        is_value = is_a(error, "psycopg", "DataError")
        return (asyncpg.DataError if is_value else asyncpg.InterfaceError)(str(error))
    about = error.diag
    fields = {
        "S": "ERROR",
        "C": error.sqlstate,
        "M": about.message_primary or type(error).__name__,
        "D": about.message_detail,
        "n": about.constraint_name,
    }
    as_asyncpg: Exception = asyncpg.PostgresError.new(fields)
    return as_asyncpg


def _is_gone(error: asyncpg.PostgresError) -> bool:
    state = error.sqlstate or ""
    return state.startswith("08") or state in _GONE


def _unique(error: asyncpg.UniqueViolationError, where: str) -> Exception:
    if error.constraint_name == "task_pkey":
        return DuplicateTask()
    if error.constraint_name in _PLACES:
        return MisplacedTask(error.detail)
    return StoreError(f"PostgreSQL at {where} says: {error}")
