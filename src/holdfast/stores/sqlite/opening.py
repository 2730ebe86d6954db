"""Opening a database: who may read it, how it is kept, and what it must not be."""

import os
from pathlib import Path

import apsw

from holdfast.clock import Clock
from holdfast.errors import NotAStore, StoreError, StoreUnreachable
from holdfast.stores.sqlite import ownership
from holdfast.stores.sqlite.session import instant_of

__all__ = ["MEMORY", "look_at", "open_connection"]

MEMORY = ":memory:"

_STATEMENTS = 300
_NETWORK = {"afs", "cifs", "fuse.sshfs", "nfs", "nfs4", "smb3", "smbfs"}
_SETTINGS = (
    "cache_size = -65536",
    "temp_store = memory",
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
)


def open_connection(
    path: str, *, clock: Clock, synchronous: str, timeout: float
) -> apsw.Connection:
    """A connection that is set up for us; the file is made where there is none."""
    if path != MEMORY:
        _make(Path(path))
    conn = apsw.Connection(path, statementcachesize=_STATEMENTS)
    try:
        conn.set_busy_timeout(round(timeout * 1000))
        # A plan that might be another for other values is made anew for each: parsing and planning
        # took longer than most of our statements, whose plans are the same for all values.
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        ownership.check(conn, path)
        if path != MEMORY and conn.pragma("journal_mode", "wal") != "wal":
            raise StoreError(f"{path} cannot keep a write-ahead log; put it on a local disk")
        for setting in (*_SETTINGS, f"synchronous = {synchronous}"):
            conn.execute(f"pragma {setting}").fetchall()
    except BaseException:
        conn.close()
        raise
    conn.create_scalar_function("now", lambda *_: _text(clock), 0)
    return conn


def look_at(path: Path) -> None:
    """Whether a store may be there. Nothing is made and nothing changed."""
    if path.is_dir():
        raise NotAStore(f"{path} is a folder; give the path of a file in it")
    if not path.parent.is_dir():
        raise StoreUnreachable(f"the folder {path.parent} is missing; make it first")
    if (kind := _file_system(path.parent)) in _NETWORK:
        raise StoreError(
            f"{path} lies on a network file system ({kind}), where locks do not hold; put it on a "
            "local disk, or use PostgreSQL"
        )
    if not path.exists():
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise _unwritable(path, "Permission denied")
    ownership.look_at(path)


def _make(path: Path) -> None:
    try:
        # Only where there is none: to close a file is to drop all locks of this process on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise _unwritable(path, error.strerror) from error


def _unwritable(path: Path, why: str | None) -> StoreUnreachable:
    return StoreUnreachable(
        f"{path} cannot be opened for writing: {why}; check who owns the file and its folder"
    )


def _file_system(folder: Path) -> str | None:
    """What the folder lies on, where Linux says so."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return None
    place = folder.resolve()
    found = [line.split()[1:3] for line in mounts.splitlines()]
    on = [(point, kind) for point, kind in found if place.is_relative_to(point)]
    return max(on, key=lambda mount: len(mount[0]), default=("", None))[1]


def _text(clock: Clock) -> str:
    """As the views write instants, so that they compare."""
    return instant_of(clock.wall()).strftime("%Y-%m-%d %H:%M:%S.%f")
