"""Numbered SQL files, forward only, under one lock.

A migration's first line may say `-- fits: N`: releases that know at least N keep working on it.
A release of version V works on every schema from its own up to one that still fits V.
"""

import re
from importlib.resources.abc import Traversable

import msgspec

from holdfast.errors import SchemaMismatch

__all__ = ["Migration", "check", "pending"]

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_FITS = re.compile(r"^-- fits: (\d+)$", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    version: int
    name: str
    fits: int
    sql: str


def known(folder: Traversable) -> list[Migration]:
    """All migrations of this release, in order."""
    found = []
    for file in folder.joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            sql = file.read_text("utf-8")
            fits = _FITS.search(sql)
            version = int(match[1])
            found.append(Migration(version, match[2], int(fits[1]) if fits else version, sql))
    return sorted(found, key=lambda m: m.version)


def pending(found: tuple[int, int] | None, folder: Traversable) -> list[Migration]:
    """What is still to be done on a database whose (version, fits) is `found`."""
    return [m for m in known(folder) if found is None or m.version > found[0]]


def check(found: tuple[int, int] | None, folder: Traversable) -> int:
    """The version of a schema that this release can work on; otherwise a clear refusal."""
    ours = known(folder)[-1].version
    if found is None or found[0] < ours:
        raise SchemaMismatch(
            f"the database has schema version {found[0] if found else 0}, this release needs "
            f"{ours}: run `holdfast migrate up`, or leave automatic migration on"
        )
    version, fits = found
    if fits > ours:
        raise SchemaMismatch(
            f"the database has schema version {version}, which needs a release that knows schema "
            f"{fits}; this one knows {ours}. Upgrade holdfast on this machine"
        )
    return version
