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
        if not self.has_given(name):
            raise self.too_many(name)

    def has_given(self, name: str) -> bool:
        """One token; False: there is none."""
        left = self._left(name)
        if self._rate and left < 1.0:
            return False
        self._put(name, left - 1.0)
        return True

    def take_back(self, name: str) -> None:
        """A token that was not used up after all."""
        self._put(name, min(self._burst, self._left(name) + 1.0))

    def too_many(self, name: str) -> Problem:
        seconds = max(1, ceil((1.0 - self._left(name)) / self._rate))
        return Problem(
            429,
            "too_many_requests",
            f"too many requests; come again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )

    def _put(self, name: str, tokens: float) -> None:
        self._buckets[name] = (tokens, self._clock.boot())
        self._buckets.move_to_end(name)
        if len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)

    def _left(self, name: str) -> float:
        now = self._clock.boot()
        tokens, at = self._buckets.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - at) / 1_000_000 * self._rate)
