"""Queries of people's own. They read, and nothing else, and not for ever."""

from typing import Any

import apsw

from holdfast.clock import SystemClock
from holdfast.errors import InvalidInput, ReadOnly, StoreError
from holdfast.stores.driver import Row
from holdfast.stores.reading import MOST_BYTES, Answer, check_reads, too_large, took_too_long

__all__ = ["Patience", "query"]

_STEPS = 10_000  # of SQLite's machine between two looks at the time; much less than a millisecond
_TIMER = SystemClock()  # waiting is real, whatever clock judges the leases


class Patience:
    """How long somebody waits for an answer: so many seconds from its beginning, or until they
    have gone, which another thread says."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.gone: str | None = None
        self._over = 0

    def begin(self) -> None:
        self._over = _TIMER.boot() + round(self.seconds * 1_000_000)

    def is_over(self) -> bool:
        return self.gone is not None or _TIMER.boot() >= self._over

    def error(self) -> StoreError:
        return StoreError(self.gone) if self.gone else took_too_long(self.seconds)


def query(conn: apsw.Connection, sql: str, patience: Patience) -> tuple[list[str], list[Row]]:
    """The columns and rows of one statement."""
    check_reads(sql)
    cursor, columns = conn.cursor(), list[str]()

    def only_reads(cursor: apsw.Cursor, statement: str, _: Any) -> bool:
        if columns:
            raise InvalidInput("give one statement at a time")
        if not cursor.is_readonly:
            raise ReadOnly
        columns.extend(name for name, _ in cursor.get_description())
        return True

    cursor.exec_trace = only_reads
    conn.pragma("query_only", True)  # some functions write although their statement only reads
    longest = conn.limit(apsw.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    patience.begin()
    conn.set_progress_handler(patience.is_over, _STEPS)
    try:
        rows = _rows(cursor, sql)
    except apsw.InterruptError:
        raise patience.error() from None
    except apsw.TooBigError:
        raise too_large() from None
    except (apsw.SQLError, apsw.IncompleteExecutionError) as error:
        raise InvalidInput(f"SQLite refuses this query: {error}") from None
    finally:
        conn.set_progress_handler(None)
        conn.limit(apsw.SQLITE_LIMIT_LENGTH, longest)
        cursor.close(True)
        conn.pragma("query_only", False)
    return columns, rows


def _rows(cursor: apsw.Cursor, sql: str) -> list[Row]:
    answer = Answer()
    for row in cursor.execute(sql):
        answer.add([row])
    return answer.rows
