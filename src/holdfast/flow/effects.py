"""What a function does once in its run, in other tasks' lives: dispatches, signals.

Their ids are derived from the run, so that doing it again after a crash changes nothing; what they
came to is recorded with whatever is recorded next, so that a replay need not do it again.
"""

import asyncio
from collections.abc import Collection
from uuid import UUID

import msgspec

from holdfast.context import Effect
from holdfast.flow.branches import Branch
from holdfast.flow.entries import Key, Recorded
from holdfast.flow.history import History
from holdfast.flow.recording import Recording
from holdfast.ids import derived_id
from holdfast.tasks.payload import decode, encode

__all__ = ["Effects"]

_PATIENCE = 3.0  # seconds that the store has, where the function has ended: less than it has itself
_BEFORE = Key("", "done before", "", 0)


class _Before(msgspec.Struct, frozen=True):
    """What was done before the function asked for anything: how often in each branch."""

    since: int
    times: dict[str, int]


class Effects:
    """Of one attempt. `since`: what tells this run from those before it."""

    def __init__(
        self, task: UUID, since: int, history: History, recording: Recording, times: dict[str, int]
    ) -> None:
        """`times`: what was done without us, in this attempt, by branch: the last number."""
        self._task, self._since = task, since
        self.under_way: set[asyncio.Task[bytes]] = set()
        self.unheard: set[asyncio.Task[bytes]] = set()  # noted just now
        self._held = 0
        self._may_come = asyncio.Event()
        self._may_come.set()
        self._history, self._recording = history, recording
        self._next = {path: last + 1 for path, last in times.items()}
        self._before = _Before(since, dict(self._next))
        if found := history.value(_BEFORE):
            self._before = decode(bytes(found.result), _Before)
        elif history.next_position == 0 and times:
            entry = Recorded(_BEFORE, result=msgspec.Raw(encode(self._before)), what="value")
            recording.add(entry)

    def begin(self, work: "asyncio.Task[bytes]") -> None:
        self.under_way.add(work)
        work.add_done_callback(self.under_way.discard)

    async def end(self, works: Collection["asyncio.Task[bytes]"] = ()) -> None:
        """These, or all that are under way: to their end, unless that takes long."""
        if not (left := works or self.under_way.copy()):
            return
        _, slow = await asyncio.wait(left, timeout=_PATIENCE)
        for work in slow:
            work.cancel()
        if slow:
            await asyncio.wait(slow)
        for work in left:
            if not work.cancelled():
                work.exception()  # nobody else asks

    def hold(self) -> None:
        """Answers are handed over: what is done meanwhile comes after them, as in a replay."""
        self._may_come.clear()

    def let_go(self) -> bool:
        """Whether any were held."""
        held, self._held = self._held, 0
        self._may_come.set()
        return held > 0

    async def turn(self) -> None:
        """Until what is done may be heard of."""
        if not self._may_come.is_set():
            self._held += 1
            await self._may_come.wait()

    def heard(self, work: "asyncio.Task[bytes]") -> None:
        self.unheard.discard(work)

    def look(self, branch: Branch, name: str, digest: str) -> Effect:
        number = self._next.get(branch.path, 0)
        self._next[branch.path] = number + 1
        before = self._before
        if number < before.times.get(branch.path, 0):
            key = Key(branch.path, f"{name}, before", digest, number)
            base = derived_id(self._task, before.since, branch.path, number, digest)
            return self._effect(key, base, done=True)
        key = branch.key(name, digest)
        return self._effect(key, derived_id(self._task, self._since, *key), done=False)

    def _effect(self, key: Key, base: UUID, *, done: bool) -> Effect:
        found = self._history.value(key)
        value = None if found is None else bytes(found.result)
        return Effect(base=base, value=value, done=done, place=key)

    def note(self, effect: Effect, value: bytes, *, decides: bool) -> None:
        entry = Recorded(effect.place, result=msgspec.Raw(value), what="value")
        self._recording.add(entry, decides=decides, stays=True)
        if (work := asyncio.current_task()) in self.under_way:
            self.unheard.add(work)
