"""Time as a thing that can be handed over. Nobody else reads a clock.

The stores judge leases by their own clock: PostgreSQL by the server's, SQLite by this one, since
there the database lives in each process. Boot time goes on while the machine sleeps and never
jumps when somebody sets the wall clock; it is comparable only within one boot.
"""

import sys
import time
import uuid
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


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
    """The clocks of this machine."""

    def __init__(self) -> None:
        self.boot_id = _boot_id()

    def wall(self) -> int:
        return time.time_ns() // 1000

    def boot(self) -> int:
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


def _boot_id() -> str:
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # The start of this boot in whole minutes: equal for all processes, different after a restart.
    started = time.time() - time.monotonic()
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{uuid.getnode()}:{round(started / 60)}"))
