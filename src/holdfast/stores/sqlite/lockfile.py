"""Where the processes that write one database queue up: a lock file beside it.

SQLite's own waiting is a poll, and one of four processes did all the work with it. The kernel
wakes those who wait for a file lock in turn, and lets go of it when a process dies.
"""

import os
import threading
from pathlib import Path

from holdfast.errors import StoreUnreachable

try:
    import fcntl
except ImportError:  # Windows: SQLite's own waiting has to do
    fcntl = None  # type: ignore[assignment]

__all__ = ["LockFile"]

_open: set[int] = set()


class LockFile:
    """Held by one connection at a time, in this process or another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = self._new()

    def acquire(self, timeout: float) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(timeout)
        name = b"%-10d\n" % os.getpid()
        if os.pread(self._fd, len(name), 0) != name:
            os.pwrite(self._fd, name, 0)

    def release(self) -> None:
        if fcntl is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        _close(self._fd)

    def _wait(self, timeout: float) -> None:
        """A file lock cannot be waited for with a timeout, so a thread waits, which may be left.

        It opens the file anew: a lock belongs to one opening, and it must not take ours.
        """
        fd = self._new()
        deciding = threading.Lock()
        locked, left = threading.Event(), threading.Event()

        def wait() -> None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with deciding:
                if left.is_set():
                    _close(fd)
                locked.set()

        threading.Thread(target=wait, name="holdfast-lock", daemon=True).start()
        if not locked.wait(timeout):
            with deciding:
                if not locked.is_set():
                    left.set()
                    raise StoreUnreachable(self._complaint(timeout))
        _close(self._fd)
        self._fd = fd

    def _new(self) -> int:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        _open.add(fd)
        return fd

    def _complaint(self, timeout: float) -> str:
        pid = os.pread(self._fd, 10, 0).decode(errors="replace").strip() or "unknown"
        return (
            f"{self._path} has been held for {timeout:g} s, last by process {pid}; is that process "
            "stopped inside a write? Continue it or end it, then try again"
        )


def _close(fd: int) -> None:
    _open.discard(fd)
    os.close(fd)


def _let_go() -> None:
    """A forked child must not hold on to the lock of a parent that dies."""
    for fd in tuple(_open):
        _close(fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
