"""How long one thread of the interpreter keeps the others waiting.

Functions that compute keep the event loop's thread busy. The threads beside it, which renew leases
and write to SQLite, need a turn for each of their few steps, and Python gives it to them after five
milliseconds at the earliest: a commit in ten steps took fifty.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["short_turns"]

_TURN = 0.001  # seconds


@contextmanager
def short_turns() -> Iterator[None]:
    """While a worker serves. Whoever wants them even shorter keeps theirs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
