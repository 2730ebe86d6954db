"""How long one thread of the interpreter keeps the others waiting.

Functions that compute keep the event loop's thread busy. The threads beside it, which renew leases
and write to SQLite, need a turn for each of their few steps, and Python gives it to them after five
milliseconds at the earliest: a commit in ten steps took fifty.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["short_turns"]

_TURN = 0.001  # seconds


class _Turns:
    """Of the whole process, in which several workers may serve: the last one puts them back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serving = 0
        self._usual = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._serving:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _TURN))
            self._serving += 1

    def end(self) -> None:
        with self._lock:
            self._serving -= 1
            if not self._serving:
                sys.setswitchinterval(self._usual)


_turns = _Turns()


@contextmanager
def short_turns() -> Iterator[None]:
    """While a worker serves. Whoever wants them even shorter keeps theirs."""
    _turns.begin()
    try:
        yield
    finally:
        _turns.end()
