"""Until when an attempt may run. Counts on the worker's loop what the store told as a duration."""

from datetime import timedelta
from math import inf

from holdfast.tasks.task import Claimed
from holdfast.work.why import Why

__all__ = ["first_end", "time_left"]


def time_left(claimed: Claimed, passed: float) -> float:
    """Seconds until its task expires, so many after it was taken."""
    return inf if claimed.expires_in is None else claimed.expires_in - passed


def first_end(left: float, timeout: timedelta | None) -> tuple[float, Why] | None:
    """What ends an attempt that starts now, and in how many seconds; None: nothing."""
    longest = inf if timeout is None else timeout.total_seconds()
    if min(left, longest) == inf:
        return None
    return (left, Why.EXPIRED) if left < longest else (longest, Why.TIMEOUT)
