"""What ran, written by the tasks themselves: no system is asked about its own deeds.

Each worker has a file of its own, named by BENCH_LEDGER; one record is one write, so threads and
forked children may share it. Imports nothing but the standard library: every peer's worker has it.
"""

import os
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Record", "began", "counted", "ended", "lines", "read"]

RECORD = struct.Struct("<dii")  # when, which task, 0: began or 1: ended
_file: int | None = None


class Record(NamedTuple):
    when: float
    number: int
    ended: int


def began(number: int = -1) -> None:
    """The first line of every task; those that hold on for a second have numbers."""
    _write(time.time(), number, 0)


def ended(number: int) -> None:
    """The last line of a task that takes its time."""
    _write(time.time(), number, 1)


def _write(when: float, number: int, end: int) -> None:
    global _file
    if _file is None:
        _file = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_file, RECORD.pack(when, number, end))


def read(folder: Path) -> dict[str, list[Record]]:
    """The records of every worker that wrote any, in the order of their times."""
    found = {path.name: sorted(_records(path)) for path in folder.iterdir()}
    return {name: records for name, records in found.items() if records}


def lines(folder: Path) -> int:
    """How many records there are: the sizes of the files tell."""
    return sum(path.stat().st_size for path in folder.iterdir()) // RECORD.size


def counted(records: list[Record], *, end: bool) -> Counter[int]:
    """How often each numbered task began, or ended."""
    return Counter(r.number for r in records if r.number >= 0 and bool(r.ended) == end)


def _records(path: Path) -> Iterator[Record]:
    data = path.read_bytes()
    whole = len(data) - len(data) % RECORD.size
    return map(Record._make, RECORD.iter_unpack(data[:whole]))
