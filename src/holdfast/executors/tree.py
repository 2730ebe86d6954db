"""All that a process started, wherever it went: found in /proc and killed. Linux only.

A process that adopts orphans becomes the parent of every descendant that lost its own, so nobody
leaves its tree while it lives. A number can go to a stranger at any time; hence a process is
killed by a handle, and only if its parent, which is held too, is still its parent.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress

__all__ = ["Tree", "adopt_orphans", "can_be_seen", "kill_rest"]

_PR_SET_CHILD_SUBREAPER = 36
_MOST_ROUNDS = 1000
_AGAIN = 0.001  # seconds
_STANDING = b"TtZX"  # stopped or dead: such a thread starts nobody


def adopt_orphans() -> None:
    """From now on who loses its parent below this process becomes a child of it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def can_be_seen(root: int) -> bool:
    """Not on macOS, without /proc, or where the kernel is old or small."""
    has_handles = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
    return has_handles and os.path.exists(f"/proc/{root}/task/{root}/children")


def kill_rest(root: int) -> None:
    """All below this very process, which is about to end by itself."""
    if os.getpid() != root or not can_be_seen(root):  # a copy that the function has forked
        return
    tree = Tree(root)
    for _ in range(_MOST_ROUNDS):
        if tree.kill():
            return
        time.sleep(_AGAIN)


class Tree:
    """What is below a process that is held: not reaped before this is over."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._dead: set[int] = set()

    def stop_root(self) -> bool:
        """Whether it stands still, so that it starts nobody. Asked again, it is stopped again."""
        with suppress(OSError):
            os.kill(self._root, signal.SIGSTOP)
        return all(
            _state(f"{self._root}/task/{each}") in _STANDING for each in _threads(self._root)
        )

    def kill(self) -> bool:
        """Everyone who is found; true if nobody was, nor can have been overlooked.

        Who dies while others are listed leaves its children to a parent whose list was read
        before. So nobody is missing only if all who were found were known to be dead.
        """
        with ExitStack() as held:
            living, dead = self._find(held)
            for handle in living:
                if handle is not None:
                    _signalled(handle, signal.SIGKILL)
        was_quiet = not living and not dead
        self._dead |= dead
        return was_quiet

    def _find(self, held: ExitStack) -> tuple[list[int | None], set[int]]:
        """Who lives (None: it has moved meanwhile, or cannot be held), and who has died."""
        living: list[int | None] = []
        dead: set[int] = set()
        todo: list[tuple[int, int | None]] = [(self._root, None)]
        while todo:
            parent, its = todo.pop()
            for pid in _children(parent):
                if pid in self._dead:
                    continue
                if _is_dead(pid):
                    dead.add(pid)
                    continue
                handle = _hold(pid, held)
                is_below = _parent(pid) == parent and (its is None or _signalled(its, 0))
                if handle is None or not is_below:
                    living.append(None)
                elif _signalled(handle, 0):  # else it belongs to somebody else
                    living.append(handle)
                    todo.append((pid, handle))
        return living, dead


def _hold(pid: int, held: ExitStack) -> int | None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    held.callback(os.close, handle)
    return handle


def _signalled(handle: int, number: int) -> bool:
    """Not if it is gone, or belongs to somebody else."""
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    return True


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for thread in _threads(pid)
        for child in _read(f"{pid}/task/{thread}/children").split()
    ]


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    fields = _fields(str(pid))
    return int(fields[1]) if fields else None


def _is_dead(pid: int) -> bool:
    """Its first thread alone may have ended."""
    return all(_state(f"{pid}/task/{thread}") in b"ZX" for thread in _threads(pid))


def _state(where: str) -> bytes:
    fields = _fields(where)
    return fields[0] if fields else b"X"


def _fields(where: str) -> list[bytes]:
    """What follows the name, which may contain anything: state, parent and more."""
    return _read(f"{where}/stat").rpartition(b")")[2].split()


def _read(name: str) -> bytes:
    try:
        with open(f"/proc/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
