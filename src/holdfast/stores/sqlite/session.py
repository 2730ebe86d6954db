"""What a procedure works with: named statements, and one reading of the clock for all of them.

Statements may name `:now`, `:boot` and `:boot_now` without being given them.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from itertools import repeat
from typing import Any
from uuid import UUID, SafeUUID

import apsw
import msgspec

from holdfast.clock import Clock
from holdfast.stores import queries

__all__ = [
    "AMBIENT",
    "FOREVER",
    "STATEMENTS",
    "Rows",
    "Session",
    "bytes_of",
    "instant_of",
    "json",
    "micros",
    "micros_of",
    "numbers_of",
    "uuid_of",
]

STATEMENTS = {
    name: (sql, queries.parameters(sql))
    for name, sql in queries.load(files("holdfast.stores.sqlite")).items()
}
AMBIENT = frozenset({"now", "boot", "boot_now"})
FOREVER = 2**63 - 1  # the instant that never comes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_new, _set = object.__new__, object.__setattr__
_UNKNOWN = SafeUUID.unknown  # to look a member up costs more than to set it
_numbers = msgspec.json.Decoder(list[int]).decode

Rows = list[tuple[Any, ...]]


class Session:
    """One transaction on one connection."""

    __slots__ = ("_ambient", "boot", "boot_now", "conn", "now")

    def __init__(self, conn: apsw.Connection, clock: Clock) -> None:
        self.conn = conn
        self.now = clock.wall()
        self.boot = _number(clock.boot_id)
        self.boot_now = clock.boot()
        self._ambient = {"now": self.now, "boot": self.boot, "boot_now": self.boot_now}

    def rows(self, name: str, /, **values: Any) -> Rows:
        """What one statement answers."""
        sql, names = STATEMENTS[name]
        given = {**self._ambient, **values}
        return self.conn.execute(sql, [_plain(given[name]) for name in names]).fetchall()

    def row(self, name: str, /, **values: Any) -> tuple[Any, ...] | None:
        """The only row, if there is one."""
        return next(iter(self.rows(name, **values)), None)

    def value(self, name: str, /, **values: Any) -> Any:
        """The only row's first column."""
        row = self.row(name, **values)
        return None if row is None else row[0]

    def run(self, name: str, /, **values: Any) -> int:
        """How many rows one statement changed."""
        self.rows(name, **values)
        return self.conn.changes()

    def each(self, name: str, /, **columns: Any) -> Rows:
        """The statement once for every element of the lists; other values stay the same.

        Values go to SQLite as they are: ids as bytes, instants as numbers.
        """
        sql, names = STATEMENTS[name]
        values = (columns[name] if name in columns else self._ambient[name] for name in names)
        rows = zip(*(v if isinstance(v, _LISTS) else repeat(v) for v in values), strict=False)
        return self.conn.executemany(sql, rows).fetchall()

    def run_each(self, name: str, /, **columns: Any) -> int:
        """As `each`: how many rows were changed. Rows that are handed over cost more than that."""
        before = self.conn.total_changes()
        self.each(name, **columns)
        return self.conn.total_changes() - before

    def numbers(self, counter: str, n: int) -> range:
        """The next `n` numbers of a counter."""
        last: int = self.value("counter.take", name=counter, n=n)
        return range(last - n + 1, last + 1)


_LISTS = (list, tuple, range)


def bytes_of(ids: Iterable[UUID]) -> list[bytes]:
    return [id.bytes for id in ids]


def uuid_of(data: bytes) -> UUID:
    """`UUID(bytes=data)` in a third of the time: a claim makes hundreds."""
    made = _new(UUID)
    _set(made, "int", int.from_bytes(data))
    _set(made, "is_safe", _UNKNOWN)
    return made


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def micros_of(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def instant_of(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def numbers_of(text: str | None) -> list[int]:
    """What group_concat made of numbers."""
    return _numbers(f"[{text or ''}]")


def json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


def _plain(value: Any) -> Any:
    """A parameter as SQLite knows it."""
    match value:
        case UUID():
            return value.bytes
        case datetime():
            return micros_of(value)
        case list():
            return json(value)
        case _:
            return value


@lru_cache(16)
def _number(boot_id: str) -> int:
    """A boot as a number: it stands on every lease."""
    return int.from_bytes(sha256(boot_id.encode()).digest()[:8], signed=True)
