"""The leases that a worker holds, and until when it may be sure of each. Used by two threads."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from holdfast.clock import Clock
from holdfast.tasks.task import Lease

__all__ = ["Holding"]


class _Held(msgspec.Struct, gc=False):
    lease: Lease
    until: int
    resting: bool = False


class Holding:
    """Each lease with its deadline: the moment before which it cannot have lapsed.

    Counted from when the claim or the last good renewal was *sent*, in boot time, less a margin
    in which the work can be stopped. Of one task the newest grant counts; older ones are strangers.
    """

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self.clock = clock
        self.now = clock.boot
        self._sure = round(lease_seconds * 0.9 * 1_000_000)
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}  # by the task's number, which is quick to hash

    def __len__(self) -> int:
        return len(self._held)

    def add(self, leases: Iterable[Lease], sent: int) -> None:
        until = sent + self._sure
        with self._lock:
            for lease in leases:
                self._held[lease.task.int] = _Held(lease, until)

    def holds(self, lease: Lease) -> bool:
        with self._lock:
            return self._find(lease) is not None

    def drop(self, leases: Iterable[Lease]) -> None:
        """They were settled, or are gone. A newer grant of the same task stays."""
        with self._lock:
            for lease in leases:
                number = lease.task.int
                held = self._held.get(number)
                if held and (held.lease is lease or held.lease == lease):
                    del self._held[number]

    def rest(self, leases: Iterable[Lease]) -> None:
        """They are being settled: leave them alone for now."""
        self._set_resting(leases, True)

    def resume(self, leases: Iterable[Lease]) -> None:
        self._set_resting(leases, False)

    @contextmanager
    def at_rest(self, leases: Sequence[Lease]) -> Iterator[None]:
        """While they are being settled. They are held on where that fails."""
        self.rest(leases)
        try:
            yield
        except BaseException:
            self.resume(leases)
            raise

    def renewed(self, leases: Iterable[Lease], sent: int) -> None:
        until = sent + self._sure
        with self._lock:
            for lease in leases:
                if held := self._find(lease):
                    held.until = until

    def leases(self) -> list[Lease]:
        """Those to be renewed."""
        with self._lock:
            return [held.lease for held in self._held.values() if not held.resting]

    def still(self, leases: Iterable[Lease]) -> list[Lease]:
        """Those of them that were neither settled in the meantime nor are just being settled."""
        with self._lock:
            return [one for one in leases if (held := self._find(one)) and not held.resting]

    def overdue(self) -> list[Lease]:
        """Those that may lapse any moment: their work must stop."""
        now = self.clock.boot()
        with self._lock:
            return [held.lease for held in self._held.values() if held.until <= now]

    def next_deadline(self) -> float | None:
        """Seconds until the first of them becomes overdue."""
        with self._lock:
            first = min((held.until for held in self._held.values()), default=None)
        return None if first is None else max(0.0, (first - self.clock.boot()) / 1_000_000)

    def _set_resting(self, leases: Iterable[Lease], resting: bool) -> None:
        with self._lock:
            for lease in leases:
                if held := self._find(lease):
                    held.resting = resting

    def _find(self, lease: Lease) -> _Held | None:
        held = self._held.get(lease.task.int)
        return held if held and (held.lease is lease or held.lease == lease) else None
