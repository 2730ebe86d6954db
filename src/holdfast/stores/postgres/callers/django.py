"""Django: `django.db.connection` and `connections["name"]`, on psycopg 3."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.errors import InvalidInput
from holdfast.stores.driver import Row
from holdfast.stores.postgres.callers.caller import is_a, named, pyformat

__all__ = ["Django"]

T = TypeVar("T")


class Django:
    """Belongs to the thread that opened it, which must not run an event loop."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def raw(self) -> Any:
        return _where_django_allows_it(self._raw)

    def fetch(self, statement: str, /, *values: Any) -> Sequence[Row]:
        return _where_django_allows_it(lambda: self._fetch(statement, values))

    def _raw(self) -> Any:
        conn = self._conn
        if conn.vendor != "postgresql":
            raise InvalidInput(
                f"conn= is a Django connection to {conn.vendor}; this store is in PostgreSQL"
            )
        _check_thread(conn)
        if conn.get_autocommit():
            raise InvalidInput(
                "conn= commits each statement by itself, so the task would not wait for your "
                "rows; open a transaction first with `with transaction.atomic():`"
            )
        if not is_a(conn.connection, "psycopg", "Connection"):
            raise InvalidInput("conn= is a Django connection by psycopg2; install psycopg 3")
        return conn.connection

    def _fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Row]:
        with self._conn.cursor() as cursor:
            cursor.execute(pyformat(statement), named(values))
            rows: Sequence[Row] = cursor.fetchall()
            return rows


def _check_thread(conn: Any) -> None:
    try:
        conn.validate_thread_sharing()
    except Exception as error:
        raise _only_there() from error


def _where_django_allows_it(work: Callable[[], T]) -> T:
    try:
        return work()
    except Exception as error:
        if is_a(error, "django.core.exceptions", "SynchronousOnlyOperation"):
            raise _only_there() from error
        raise


def _only_there() -> InvalidInput:
    return InvalidInput(
        "a Django connection works only in the thread that opened it, in synchronous code; there, "
        "inside `with transaction.atomic():`, call `write(connection)` on what "
        "`await store.prepare(drafts)` answered"
    )
