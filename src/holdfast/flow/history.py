"""What is recorded of a function so far, handed out as its code asks for it again."""

from collections.abc import Container, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Step
from holdfast.flow.entries import (
    Abandoned,
    Again,
    Asked,
    Came,
    Dropped,
    Entry,
    Holder,
    Key,
    One,
    Recorded,
    read,
)

__all__ = ["Arrival", "Begun", "History"]


class Arrival(msgspec.Struct, frozen=True):
    """What reaches the function, and which ask it answers."""

    key: Key
    one: One


class Begun(msgspec.Struct):
    """An ask that is recorded. `age`: seconds since then, when the journal was read."""

    position: int
    asked: Asked
    age: float
    task: UUID | None
    again: bool = False  # its failure was dropped: it runs again
    abandoned: bool = False


class History:
    """The journal, read once. `next_position` is where the next entry goes."""

    def __init__(self, steps: Sequence[Step] = (), ages: Sequence[float] = ()) -> None:
        self.next_position = steps[-1].position + 1 if steps else 0
        self.begun: dict[Key, Begun] = {}
        self._values: dict[Key, Recorded] = {}
        self._batches: list[list[Arrival]] = []
        self._passed: list[Arrival] = []  # recorded, but not asked for when its turn came
        self._at = 0
        self._by_position: dict[int, Begun] = {}
        for step, age in zip(steps, ages, strict=True):
            self._read(step.position, read(step), age)

    def _read(self, position: int, entry: Entry, age: float) -> None:
        begun = self._by_position
        match entry:
            case Asked():
                begun[position] = Begun(position, entry, age, entry.task)
                self.begun[entry.key] = begun[position]
            case Holder():
                begun[entry.ask].task = entry.task
            case Abandoned():
                for ask in entry.asks:
                    begun[ask].abandoned = True
            case Recorded(what="value"):
                self._values[entry.key] = entry
            case Recorded():
                how: Any = "done" if entry.failure is None else "failed"
                one = One(position, how, entry.result, entry.failure)
                self._batches.append([Arrival(entry.key, one)])
            case Came():
                self._batches.append([Arrival(begun[o.ask].asked.key, o) for o in entry.all])
            case Dropped():
                self._drop(frozenset(entry.asks))
            case Again():
                for ask in entry.asks:
                    begun[ask].again = False

    def _drop(self, asks: frozenset[int]) -> None:
        """What they came to until now counts no more."""
        for ask in asks & self._by_position.keys():
            self._by_position[ask].again = True
        kept = ([one for one in batch if one.one.ask not in asks] for batch in self._batches)
        self._batches = [batch for batch in kept if batch]

    @property
    def is_exhausted(self) -> bool:
        return self._at == len(self._batches) and not self._passed

    def value(self, key: Key) -> Recorded | None:
        return self._values.get(key)

    def is_next(self, key: Key) -> Arrival | None:
        """What comes next, where it is the answer to this ask alone."""
        if self._passed or self._at == len(self._batches):
            return None
        batch = self._batches[self._at]
        if len(batch) != 1 or batch[0].key != key:
            return None
        self._at += 1
        return batch[0]

    def take(self, open: Container[Key]) -> list[Arrival]:
        """What reached the function next, as far as it is asked for; nothing: all is told."""
        for place, arrival in enumerate(self._passed):
            if arrival.key in open:
                del self._passed[place]
                return [arrival]
        while self._at < len(self._batches):
            batch = self._batches[self._at]
            self._at += 1
            here = [arrival for arrival in batch if arrival.key in open]
            self._passed += [arrival for arrival in batch if arrival.key not in open]
            if here:
                return here
        return []

    def unasked(self, asked: Container[Key]) -> list[Key]:
        """Answers that are recorded for what today's code never asked."""
        left = self._passed + [one for batch in self._batches[self._at :] for one in batch]
        return [one.key for one in left if one.key not in asked and not self._is_abandoned(one.key)]

    def _is_abandoned(self, key: Key) -> bool:
        begun = self.begun.get(key)
        return begun is not None and begun.abandoned
