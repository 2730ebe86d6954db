"""Time as a thing that can be handed over. Nobody else reads a clock.

The stores judge leases by their own clock: PostgreSQL by the server's, SQLite by this one, since
there the database lives in each process. Boot time goes on while the machine sleeps and never
jumps when somebody sets the wall clock; it is comparable only within one boot, so a boot needs a
name that all its processes agree on. Linux and macOS have one. Elsewhere, and where it cannot be
read, nothing reliable tells one boot from the next: there leases are judged by wall time, as
PostgreSQL judges them. Holders and those who recover see every jump of it alike: it may end leases
early or late, and still only one holds a task.
"""

import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock", "here", "lap"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MACOS = b"kern.bootsessionuuid"
_UNKNOWN = "unknown: judged by wall time"


class Clock(Protocol):
    """All readings are whole microseconds."""

    @property
    def boot_id(self) -> str:
        """Names the boot that `boot` readings belong to."""
        ...

    def wall(self) -> int:
        """Since 1970, as people see it: for `run_at`, pages and logs."""
        ...

    def boot(self) -> int:
        """Since this machine started: for leases and deadlines."""
        ...


class SystemClock:
    """The clocks of this machine. Nothing is read before it is asked for."""

    @property
    def boot_id(self) -> str:
        return _boot() or _UNKNOWN

    def wall(self) -> int:
        return time.time_ns() // 1000

    def boot(self) -> int:
        if _boot() is None:
            return self.wall()
        if _BOOTTIME is None:
            return time.monotonic_ns() // 1000
        return time.clock_gettime_ns(_BOOTTIME) // 1000


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, wall: int = 1_700_000_000_000_000, boot: int = 1_000_000_000) -> None:
        self.boot_id = "manual"
        self._wall, self._boot = wall, boot

    def wall(self) -> int:
        return self._wall

    def boot(self) -> int:
        return self._boot

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall += round(seconds * 1_000_000)
        self._boot += round(seconds * 1_000_000)

    def set_wall(self, wall: int) -> None:
        """Somebody set the wall clock; boot time does not notice."""
        self._wall = wall

    def reboot(self) -> None:
        """The machine started anew: leases of the former boot have lapsed."""
        self.boot_id = f"{self.boot_id}+"
        self._boot = 0


@cache
def _boot() -> str | None:
    """The name of this boot, from the kernel; None: it gives none."""
    try:
        match sys.platform:
            case "linux":
                name = _LINUX.read_text()
            case "darwin":
                name = _sysctl(_MACOS)
            case _:
                return None
    except OSError:  # no /proc, or not for us
        return None
    return name.strip() or None


def _sysctl(name: bytes) -> str:
    import ctypes

    ask = ctypes.CDLL(None, use_errno=True).sysctlbyname
    size = ctypes.c_size_t(100)
    value = ctypes.create_string_buffer(size.value)
    if ask(name, value, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        raise OSError(ctypes.get_errno(), f"no {name.decode()}")
    return value.value.decode()


def here() -> datetime:
    """What people see on the clock of this machine. It decides nothing."""
    return datetime.now(UTC)


def lap() -> float:
    """Seconds since some moment: to tell people how long something took."""
    return time.perf_counter()
