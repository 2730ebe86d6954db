"""How long to rest when there is nothing to do. Pure: chance is handed in."""

import msgspec

from holdfast.errors import InvalidInput

__all__ = ["Pace", "Polling"]


class Polling(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between two looks: from `least`, times `factor` each time, up to `most`."""

    least: float = 0.2
    most: float = 10.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most <= 86_400:
            raise InvalidInput(
                f"polling goes from {self.least} s to {self.most} s; the first must be more than "
                "nothing, and the second at least as much"
            )
        if not 1 <= self.factor <= 1000:
            raise InvalidInput(f"poll_backoff_factor must be at least 1, got {self.factor}")


class Pace:
    """Backs off while nothing comes, and snaps back when something does."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self.interval = polling.least

    def snap_back(self) -> None:
        self.interval = self._polling.least

    def rest(self, next_due: float | None, roll: float) -> float:
        """Seconds to rest now: not past the next task that is due. `roll` is chance, 0 to 1: many
        workers that began together shall not ask together."""
        seconds = self.interval * (0.9 + 0.2 * roll)
        self.interval = min(self.interval * self._polling.factor, self._polling.most)
        if next_due is None:
            return seconds
        return min(seconds, max(next_due, 0.001))
