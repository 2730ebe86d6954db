"""What a function does once in its run, in other tasks' lives: dispatches, signals.

Their ids are derived from the run, so that doing it again after a crash changes nothing; what they
came to is recorded with whatever is recorded next, so that a replay need not do it again.
"""

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
        self._history, self._recording = history, recording
        self._next = {path: last + 1 for path, last in times.items()}
        self._before = _Before(since, dict(self._next))
        if found := history.value(_BEFORE):
            self._before = decode(bytes(found.result), _Before)
        elif history.next_position == 0 and times:
            entry = Recorded(_BEFORE, result=msgspec.Raw(encode(self._before)), what="value")
            recording.add(entry)

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
