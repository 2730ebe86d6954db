"""Hints by several ways at once: within the process, through Redis, and by the store's own way."""

import asyncio
import os
from collections.abc import Callable, Iterable

from holdfast.ids import new_grant
from holdfast.notifier import Hint, Notifier
from holdfast.notifiers.ear import Heard
from holdfast.notifiers.local import LocalNotifier
from holdfast.notifiers.messages import Marks
from holdfast.notifiers.outage import Outage
from holdfast.notifiers.outbox import Outbox
from holdfast.notifiers.redis import RedisNotifier

__all__ = ["SeveralNotifier"]

# Seconds that Redis is ahead of the copy: long enough that it has taken the hint, unless it is in
# trouble, and so that the store passes on at most so many copies a second, whatever is told.
_AHEAD = 0.05
_PROCESS = new_grant().hex


class SeveralNotifier:
    """`quick` is told at once, and `own`, which everybody hears, a little later: it reaches those
    who do not hear `quick`, and all others pass it over. None waits for another; one that fails
    costs only what it would have brought. `place`: who shares it in this process hears at once."""

    def __init__(
        self,
        place: str,
        *,
        quick: Callable[[Marks], RedisNotifier],
        own: Callable[[Marks], Notifier],
    ) -> None:
        # With the pid: a forked child has the same memories, and is another process.
        sender = f"{_PROCESS}.{os.getpid()}.{hash(place):x}"
        self._local = LocalNotifier(place)
        self._quick = quick(_Told(sender))
        self._own = own(_Copied(sender, self._quick))
        self._copies = Outbox(self._copy, Outage("copying hints"))

    def tell(self, hints: Iterable[Hint]) -> None:
        told = tuple(hints)
        if self._copies.tell(told):
            self._local.tell(told)
            self._quick.tell(told)

    async def listen(self, heard: Heard) -> None:
        await self._local.listen(heard)
        await asyncio.gather(self._quick.listen(heard), self._own.listen(heard))

    def leave(self, heard: Heard) -> None:
        for one in (self._local, self._quick, self._own):
            one.leave(heard)

    async def close(self) -> None:
        await self._local.close()
        await self._copies.close()
        await asyncio.gather(self._quick.close(), self._own.close())

    async def _copy(self, hints: list[Hint]) -> None:
        if not self._quick.fails:
            await asyncio.sleep(_AHEAD)
        self._own.tell(hints)


class _Told(Marks):
    """`sender` has told it within its process as well."""

    def __init__(self, sender: str) -> None:
        self._mark = f"told:{sender}"

    def write(self) -> str:
        return self._mark

    def is_known(self, mark: str) -> bool:
        return mark == self._mark


class _Copied(_Told):
    """And Redis has taken it, where the mark says so."""

    def __init__(self, sender: str, quick: RedisNotifier) -> None:
        super().__init__(sender)
        self._copied = f"copy:{sender}"
        self._quick = quick

    def write(self) -> str:
        # What is sent now was told to Redis before.
        return self._copied if self._quick.has_told_all else self._mark

    def is_known(self, mark: str) -> bool:
        if mark.startswith("copy:"):
            return mark == self._copied or self._quick.hears
        return super().is_known(mark)
