"""When to try again: exponential backoff with a cap and jitter. Pure: chance is handed in."""

import math
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.errors import InvalidInput, ProcessDied

__all__ = ["DEFAULT_RETRY", "RetryPolicy"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often and when a failed task is tried again.

    The policy travels on the task's row, so whoever recovers the task needs none of its code.
    Delays are in seconds: `initial_delay`, then times `backoff_factor` each time, at most
    `max_delay`, each moved by up to `jitter` (a share of the delay) in either direction.
    `max_attempts` counts all tries, the first included; None leaves it to the worker's default.
    `retry_for`: of what the function raises only these errors are tried again, all others fail
    for good at once; the death of its process is no such error, and is tried again. It is not
    stored: the worker that runs the function knows it from its code.
    """

    max_attempts: int | None = None
    initial_delay: float = 1.0
    backoff_factor: float = 2.0
    max_delay: float = 300.0
    jitter: float = 0.1
    retry_for: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        faults = []
        tries = self.max_attempts
        if tries is not None and not (type(tries) is int and 1 <= tries <= 32_000):
            faults.append(f"max_attempts must be a whole number from 1 to 32000, got {tries!r:.80}")
        for name in ("initial_delay", "max_delay"):
            if not _is_within(getattr(self, name), 0, 3e9):
                value = getattr(self, name)
                faults.append(f"{name} must be seconds from 0 to 3e9, got {value!r:.80}")
        if not _is_within(self.backoff_factor, 1, math.inf):
            faults.append(f"backoff_factor must be at least 1, got {self.backoff_factor!r:.80}")
        if not _is_within(self.jitter, 0, 1):
            faults.append(f"jitter must be a share from 0 to 1, got {self.jitter!r:.80}")
        if not isinstance(self.retry_for, tuple) or not all(map(_is_error, self.retry_for)):
            faults.append(
                "retry_for must be a tuple of exceptions, such as (TimeoutError,), got "
                f"{self.retry_for!r:.80}"
            )
        if faults:
            raise InvalidInput("retry policy: " + "; ".join(faults))

    def tries_again(self, error: BaseException) -> bool:
        return not self.retry_for or isinstance(error, (ProcessDied, *self.retry_for))

    def delay(self, tries: int, roll: float) -> timedelta:
        """The pause after `tries` tries; `roll` is chance, from 0 to 1."""
        # Past 1,024 doublings every delay is at its cap, and floats would overflow.
        growth = min(max(tries - 1, 0) * math.log2(self.backoff_factor), 1000.0)
        seconds = min(self.initial_delay * 2.0**growth, self.max_delay)
        moved = seconds * (1 + self.jitter * (2 * roll - 1))
        return timedelta(seconds=min(moved, self.max_delay))


def _is_within(value: Any, least: float, most: float) -> bool:
    """A finite number: no truth value, no timedelta, no text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and least <= value <= most


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


DEFAULT_RETRY = RetryPolicy()
