"""Queries of people's own: which of them only read, by their first word, and their bounds."""

import re

from holdfast.errors import InvalidInput, ReadOnly, StoreError

__all__ = ["MOST_ROWS", "check_reads", "check_rows", "took_too_long"]

MOST_ROWS = 100_000

_READS = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|(?>/\*.*?\*/))*+(select|with|values|explain)\b",
    re.IGNORECASE | re.DOTALL,
)


def check_reads(sql: str) -> None:
    """The database itself sees to the rest."""
    if not _READS.match(sql):
        raise ReadOnly


def check_rows(count: int) -> None:
    if count > MOST_ROWS:
        raise InvalidInput(
            f"the query answers more than {MOST_ROWS:,} rows; narrow it or add a limit, or ask the "
            "database with a tool of its own"
        )


def took_too_long(seconds: float) -> StoreError:
    return StoreError(
        f"the query took longer than {seconds:g} s and was stopped; narrow it, or ask the database "
        "with a tool of its own"
    )
