"""A folder for one database's sockets that nobody else can write to or read from."""

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["check_private", "folder_for", "make_private"]


def folder_for(database: str | os.PathLike[str], parent: str | os.PathLike[str] | None) -> Path:
    """The same for all who open the file, by whatever name, as one user. Not beside the file: the
    path of a socket may have about 100 bytes only."""
    real = os.path.realpath(database)
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(parent or tempfile.gettempdir()) / f"holdfast-{user}-{name}"


def make_private(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_private(folder)


def check_private(folder: Path) -> None:
    """Anyone may make a folder of that name first, and listen in it."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} is not a folder; remove it")
    if found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to user {found.st_uid}; have it removed")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} is open to others; chmod 700 {folder}")
