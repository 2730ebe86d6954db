"""Whose file it is. Another program's is refused before anything in it or beside it changes."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

import apsw

from holdfast.errors import NotAStore
from holdfast.stores import migrations
from holdfast.stores.sqlite.problems import explain

__all__ = ["check", "look_at", "refuse_names", "sign"]

_APPLICATION = 0x484F4C44  # "HOLD" in the file's header
_NAMED = re.compile(r"^create (?:table|view) (\w+)", re.MULTILINE)


def sign(conn: apsw.Connection) -> None:
    """Mark the file as ours."""
    conn.pragma("application_id", _APPLICATION)


def look_at(path: Path) -> None:
    """As if the file could not change: no lock, no file beside it. Then, where a write-ahead log
    has more to say, with it. What cannot be read so is told when the file is opened in full."""
    try:
        if not _peek(path, "immutable=1") and _has_log(path):
            _peek(path, "mode=ro")
    except apsw.NotADBError as error:
        raise explain(error, str(path)) from error
    except (apsw.Error, OSError):
        return  # somebody writes just now, say


def check(conn: apsw.Connection, where: str) -> bool:
    """Whether it was signed by us. Other programs mark their files too: theirs are left alone."""
    found = conn.pragma("application_id")
    if found not in (0, _APPLICATION):
        raise NotAStore(
            f"{where} belongs to another program (application id {found:#x}); give a file of its "
            "own to the store"
        )
    if found == 0:
        rows = conn.execute("select name from sqlite_schema where type in ('table', 'view')")
        refuse_names(name for (name,) in rows)
    return bool(found)


def refuse_names(found: Iterable[str]) -> None:
    """Tables that are named like ours and are not."""
    if names := _ours() & set(found):
        raise NotAStore(
            f"the file has tables of its own named {', '.join(sorted(names))}; give the store a "
            "file of its own"
        )


def _peek(path: Path, how: str) -> bool:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    conn = apsw.Connection(f"{path.absolute().as_uri()}?{how}", flags=flags)
    try:
        return check(conn, str(path))
    finally:
        conn.close()


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


@cache
def _ours() -> frozenset[str]:
    found = migrations.known(files("holdfast.stores.sqlite"))
    return frozenset(name for migration in found for name in _NAMED.findall(migration.sql))
