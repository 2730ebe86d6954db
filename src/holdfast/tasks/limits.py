"""Limits on what may run at once and start in a while."""

import math
import re

import msgspec

from holdfast.errors import InvalidInput

__all__ = ["Limit", "Rate"]

_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{0,6})\s*([smhd])")


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """At most `count` starts in any span of `period` seconds, wherever the span begins.

    Kept by the generic cell rate algorithm: `burst` starts at once, then one every `interval`.
    The burst is part of the count, not on top of it, so the limit holds for every span.
    """

    count: int
    period: float
    burst: int

    @classmethod
    def parse(cls, text: str, burst: int | None = None) -> "Rate":
        """`"100/m"`, `"5/10s"`; a burst of a tenth of the count unless told otherwise."""
        found = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
        if not found:
            raise InvalidInput(f"rate {text!r} is not understood; write it as '100/m' or '5/10s'")
        count = int(found[1])
        period = int(found[2] or 1) * _PERIODS[found[3]]
        if burst is None:
            burst = max(1, count // 10)
        return cls(count=count, period=period, burst=burst)

    def __post_init__(self) -> None:
        if not (0 < self.period < math.inf and 1 <= self.burst <= self.count):
            raise InvalidInput(
                f"rate {self.count}/{self.period}s with burst {self.burst}: count and period must "
                "be positive, the period finite, and the burst must lie between 1 and the count"
            )

    @property
    def interval(self) -> float:
        """Seconds between two starts once the burst is used up."""
        return self.period / (self.count - self.burst + 1)


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a function or a queue may do at once, across all workers. None: no limit."""

    max_running: int | None = None
    max_per_key: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        for name in ("max_running", "max_per_key"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 1_000_000:
                raise InvalidInput(
                    f"{name} must be from 1 to 1000000, got {value}; to stop a queue, pause it"
                )
