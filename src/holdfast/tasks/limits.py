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

    def __str__(self) -> str:
        """As it would be written, `100/m`; a burst of one's own is told too."""
        unit = next((u for u, seconds in _PERIODS.items() if seconds == self.period), None)
        text = f"{self.count}/{unit or f'{self.period:g}s'}"
        return text if self.burst == max(1, self.count // 10) else f"{text}, {self.burst} at once"

    @property
    def interval(self) -> float:
        """Seconds between two starts once the burst is used up."""
        return self.period / (self.count - self.burst + 1)


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a function or a queue may do at once, across all workers. None: no limit."""

    max_running: int | None = None
    max_per_key: int | None = None
    rate: Rate | None = None

    @classmethod
    def of(
        cls,
        max_concurrent: int | None = None,
        max_concurrent_per_key: int | None = None,
        rate_limit: str | None = None,
    ) -> "Limit":
        """In the words of those who set limits."""
        return cls(
            max_running=max_concurrent,
            max_per_key=max_concurrent_per_key,
            rate=None if rate_limit is None else Rate.parse(rate_limit),
        )

    def __post_init__(self) -> None:
        for value, word in ((self.max_running, ""), (self.max_per_key, " for a key")):
            if value is None:
                continue
            if type(value) is not int or not 1 <= value <= 1_000_000:
                raise InvalidInput(
                    f"max_concurrent{word} must be a whole number from 1 to 1000000, got "
                    f"{value!r:.80}; to stop a queue, pause it"
                )
