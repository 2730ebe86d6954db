"""How much of everything, and what came of it. Imports nothing but the standard library: every
peer's process has it."""

import json
import sys
from importlib.metadata import version
from typing import NamedTuple

__all__ = ["Rates", "Sizes", "told"]


class Sizes(NamedTuple):
    """`steps` of one function; `functions` at once, of `each` steps; `chain` of children."""

    steps: int = 500
    functions: int = 100
    each: int = 10
    chain: int = 100

    @classmethod
    def read(cls, text: str) -> "Sizes":
        return cls(*json.loads(text))


class Rates(NamedTuple):
    """Per second."""

    steps: float
    functions: float
    children: float


def told(package: str, settings: str, rates: Rates) -> None:
    """The last line of output, read by `bench.peers.flows`."""
    about = {"version": version(package), "settings": settings}
    json.dump(about | rates._asdict(), sys.stdout)
