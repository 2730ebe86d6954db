"""Queries of people's own: which of them only read, by their first word, and their bounds."""

import re
from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidInput, ReadOnly, StoreError
from holdfast.stores.driver import Row

__all__ = ["MOST_BYTES", "Answer", "check_reads", "too_large", "took_too_long"]

MOST_ROWS = 100_000
MOST_BYTES = 64 << 20
_AT_ONCE = 1 << 20  # bytes that are asked for together
_WAY_OUT = "narrow it or add a limit, or ask the database with a tool of its own"

_READS = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|(?>/\*.*?\*/))*+(select|with|values|explain)\b",
    re.IGNORECASE | re.DOTALL,
)


def check_reads(sql: str) -> None:
    """The database itself sees to the rest."""
    if not _READS.match(sql):
        raise ReadOnly


class Answer:
    """The rows of a query: as many, and as large, as anybody reads."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._bytes = 0

    def add(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        self._bytes += sum(_size(value) for row in rows for value in row)
        if len(self.rows) > MOST_ROWS:
            raise InvalidInput(f"the query answers more than {MOST_ROWS:,} rows; {_WAY_OUT}")
        if self._bytes > MOST_BYTES:
            raise too_large()

    @property
    def next(self) -> int:
        """How many rows to ask for: about so many bytes, by those that came before."""
        each = max(self._bytes / len(self.rows), 1) if self.rows else _AT_ONCE / 10
        return max(1, min(int(_AT_ONCE / each), MOST_ROWS + 1 - len(self.rows)))


def _size(value: Any) -> int:
    match value:
        case str() | bytes():
            return len(value)
        case list() | tuple():
            return sum(map(_size, value))
    return 8


def too_large() -> InvalidInput:
    return InvalidInput(f"the query answers more than {MOST_BYTES >> 20} MiB; {_WAY_OUT}")


def took_too_long(seconds: float) -> StoreError:
    return StoreError(
        f"the query took longer than {seconds:g} s and was stopped; narrow it, or ask the database "
        "with a tool of its own"
    )
