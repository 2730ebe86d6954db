"""How many requests somebody may send: a bucket of tokens each."""

from collections import OrderedDict
from math import ceil

from holdfast.clock import Clock
from holdfast.http.problems import Problem

__all__ = ["Buckets"]

_MOST = 10_000  # remembered; whoever was not heard of for longest is forgotten first


class Buckets:
    """`rate` a second each, `burst` at once. Rate 0: no limit."""

    def __init__(self, clock: Clock, *, rate: float, burst: float) -> None:
        self._clock, self._rate, self._burst = clock, rate, burst
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, name: str) -> None:
        """One token, or a problem that says when to come again."""
        if not self._rate:
            return
        left = self._left(name)
        if left < 1.0:
            seconds = ceil((1.0 - left) / self._rate)
            raise Problem(
                429,
                "too_many_requests",
                f"too many requests; come again in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )
        self._buckets[name] = (left - 1.0, self._clock.boot())
        self._buckets.move_to_end(name)
        if len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)

    def _left(self, name: str) -> float:
        now = self._clock.boot()
        tokens, at = self._buckets.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - at) / 1_000_000 * self._rate)
