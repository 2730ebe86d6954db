"""What is recorded of a function so far, handed out as its code asks for it again."""

from collections.abc import Container, Iterator, Sequence
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
    came: bool = False
    optional: bool = False  # asked after a failure that was dropped


class History:
    """The journal, read once. `next_position` is where the next entry goes."""

    def __init__(self, steps: Sequence[Step] = (), ages: Sequence[float] = ()) -> None:
        self.next_position = steps[-1].position + 1 if steps else 0
        self.begun: dict[Key, Begun] = {}
        self._values: dict[Key, Recorded] = {}
        self._batches: list[list[Arrival]] = []
        self._places: list[int] = []  # of each batch in the journal
        self._spare: dict[Key, Arrival] = {}  # came after a failure that was dropped: if asked for
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
                self._add(position, [Arrival(entry.key, one)])
            case Came():
                for one in entry.all:
                    begun[one.ask].came = True
                self._add(position, [Arrival(begun[o.ask].asked.key, o) for o in entry.all])
            case Dropped():
                self._drop(frozenset(entry.asks))
            case Again():
                for ask in entry.asks:
                    begun[ask].again = False

    def begin_anew(self) -> None:
        """The function had ended for good, and its children may have been ended with it: that is
        no answer to it in its new life. They run again, as far as they do not run still."""
        for begun in self.open:
            if begun.asked.what == "child" and begun.task == begun.asked.task:
                begun.again = True

    def _add(self, position: int, batch: list[Arrival]) -> None:
        self._batches.append(batch)
        self._places.append(position)

    def _drop(self, asks: frozenset[int]) -> None:
        """What they came to until now counts no more. What was done because of it, such as telling
        somebody, need not be done again, but is known where it is."""
        for ask in asks & self._by_position.keys():
            self._by_position[ask].again = True
            self._by_position[ask].came = False
        dropped = (any(one.one.ask in asks for one in batch) for batch in self._batches)
        first = next((place for place, is_it in enumerate(dropped) if is_it), None)
        if first is None:
            return
        since = self._places[first]
        for begun in self._by_position.values():
            begun.optional = begun.optional or begun.position > since
        later = [one for batch in self._batches[first + 1 :] for one in batch]
        self._spare |= {one.key: one for one in later if one.one.ask not in asks}
        kept = [one for one in self._batches[first] if one.one.ask not in asks]
        self._batches[first:] = [kept] if kept else []
        self._places[first:] = [since] if kept else []

    @property
    def is_exhausted(self) -> bool:
        return self._at == len(self._batches) and not self._passed

    @property
    def has_spare(self) -> bool:
        """Whether there are answers that may never be asked for again."""
        return bool(self._spare)

    def value(self, key: Key) -> Recorded | None:
        return self._values.get(key)

    def is_next(self, key: Key) -> Arrival | None:
        """What comes next, where it is the answer to this ask alone."""
        if self._passed or key in self._spare:
            return self._spare.pop(key, None)
        if self._at == len(self._batches):
            return None
        batch = self._batches[self._at]
        if len(batch) != 1 or batch[0].key != key:
            return None
        self._at += 1
        return batch[0]

    def take(self, open: Container[Key], given_up: Container[Key]) -> list[Arrival]:
        """What reached the function next, as far as it is asked for; nothing: all is told."""
        for key in self._spare:
            if key in open:
                return [self._spare.pop(key)]
        for place, arrival in enumerate(self._passed):
            if arrival.key in open:
                del self._passed[place]
                return [arrival]
        while self._at < len(self._batches):
            batch = self._batches[self._at]
            self._at += 1
            here = [arrival for arrival in batch if arrival.key in open]
            left = (arrival for arrival in batch if arrival.key not in open)
            self._passed += [arrival for arrival in left if arrival.key not in given_up]
            if here:
                return here
        return []

    def unasked(self, asked: Container[Key]) -> list[Key]:
        """What today's code never asked: recorded answers, and children that were begun."""
        left = self._passed + [one for batch in self._batches[self._at :] for one in batch]
        keys = [one.key for one in left if not self._is_abandoned(one.key)]
        keys += [begun.asked.key for begun in self.open if begun.asked.what == "child"]
        return [key for key in dict.fromkeys(keys) if key not in asked]

    def has_passed(self, asked: Container[Key]) -> bool:
        """Whether all that is recorded lies behind the code that asked for so much."""
        return self.is_exhausted and all(begun.asked.key in asked for begun in self.open)

    @property
    def open(self) -> Iterator[Begun]:
        """What was begun, and did neither come nor was given up."""
        return (b for b in self.begun.values() if not (b.abandoned or b.came or b.optional))

    def _is_abandoned(self, key: Key) -> bool:
        begun = self.begun.get(key)
        return begun is not None and begun.abandoned
