"""What is said when a carrier fails, and how long to wait before the next try."""

import asyncio
import logging
import random

__all__ = ["LOG", "Backoff", "Outage"]

LOG = logging.getLogger("holdfast.notifiers")

_FIRST = 0.2
_LONGEST = 10.0


class Outage:
    """One line when it begins and one when it ends, however often it is tried in between."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.lasts = False

    def began(self, error: BaseException) -> None:
        if not self.lasts:
            self.lasts = True
            LOG.warning(
                "%s: %s; tried again until it works. Nothing is lost: workers go on polling",
                self._what,
                _reason(error),
            )

    def ended(self) -> None:
        if self.lasts:
            self.lasts = False
            LOG.info("%s: works again", self._what)


class Backoff:
    """Twice as long after each failure, and never the same for two processes."""

    def __init__(self) -> None:
        self._next = _FIRST

    async def pause(self) -> None:
        seconds, self._next = self._next, min(self._next * 2, _LONGEST)
        await asyncio.sleep(seconds * (0.1 + 0.9 * random.random()))

    def reset(self) -> None:
        self._next = _FIRST


def _reason(error: BaseException) -> str:
    """An error that quotes what it was given may quote half a password."""
    if isinstance(error, ValueError | TypeError):
        return type(error).__name__
    first = str(error).partition("\n")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
