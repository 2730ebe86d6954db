"""Queries of people's own. They read, and nothing else."""

from typing import Any

import apsw

from holdfast.errors import InvalidInput, ReadOnly
from holdfast.stores.driver import Row
from holdfast.stores.reading import check_reads

__all__ = ["query"]


def query(conn: apsw.Connection, sql: str) -> tuple[list[str], list[Row]]:
    """The columns and rows of one statement."""
    check_reads(sql)

    columns: list[str] = []

    def only_reads(cursor: apsw.Cursor, statement: str, _: Any) -> bool:
        if columns:
            raise InvalidInput("give one statement at a time")
        if not cursor.is_readonly:
            raise ReadOnly
        columns.extend(name for name, _ in cursor.get_description())
        return True

    cursor = conn.cursor()
    cursor.exec_trace = only_reads
    conn.pragma("query_only", True)  # some functions write although their statement only reads
    try:
        rows = cursor.execute(sql).fetchall()
    except (apsw.SQLError, apsw.IncompleteExecutionError) as error:
        raise InvalidInput(f"SQLite refuses this query: {error}") from None
    finally:
        cursor.close(True)
        conn.pragma("query_only", False)
    return columns, rows
