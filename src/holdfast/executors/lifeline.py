"""A process that must not outlive its parent, nor leave children of its own behind.

Three ways, since none works everywhere. Linux: the kernel itself kills the whole process group
when the parent's end of a pipe closes, also while C code holds the interpreter. Linux, should a
forked stranger hold that end too: a signal at the parent's death. Everywhere: end of file on the
line, which a thread reads.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

__all__ = ["end_group", "tie"]

_PR_SET_PDEATHSIG = 1


def end_group() -> None:
    """Kill this process and all that it started, at once."""
    with suppress(OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def tie(pipe: int, parent: int) -> None:
    """From now on this process lives no longer than its parent, who holds the pipe's other end."""
    if sys.platform == "linux":
        watched = _watch(pipe)
        _ask_for_a_signal(parent, gently=watched)
    if os.getppid() != parent:  # it died before anyone was watching
        end_group()


def _watch(pipe: int) -> bool:
    """Nothing is ever written to the pipe: all that can happen on it is its end."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return False
    return True


def _ask_for_a_signal(parent: int, *, gently: bool) -> None:
    """A gentle one lets this process take its group with it. The kernel also sends it when only
    the thread ends that started this process."""

    def check(_: int, __: FrameType | None) -> None:
        if os.getppid() != parent:
            end_group()

    number = signal.SIGRTMAX if gently else signal.SIGKILL
    if gently:
        signal.signal(number, check)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
