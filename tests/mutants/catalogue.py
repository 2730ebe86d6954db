"""Reads the catalogue of mutants."""

import tomllib
from pathlib import Path

import msgspec

__all__ = ["MUTANTS", "Mutant"]


class Mutant(msgspec.Struct, frozen=True):
    """In `section` of `file`, `old` is replaced by `new`; the tests in `tests` must notice.

    A section is a function in PostgreSQL's migrations and in Python, else a named statement.
    """

    name: str
    file: str
    section: str
    old: str
    new: str
    tests: str

    @property
    def dialect(self) -> str:
        return self.name.partition(":")[0]


MUTANTS = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text())["mutant"], list[Mutant]
)
