"""What is recorded of a function so far, handed out as its code asks for it again.

All that reached the function stands in one order, and is handed out in it. A failure that was
dropped cuts this order: what is older stands as before; what is younger is spare. Whoever asks for
it again has it, once the rest is told, and that is recorded like any other answer; but it need not
be asked for, since without that failure the function may go another way.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from functools import cached_property
from uuid import UUID

import msgspec

from holdfast.answers import Step
from holdfast.flow.deeds import Deed, Deeds
from holdfast.flow.entries import (
    Abandoned,
    Again,
    Arrival,
    Asked,
    Came,
    Dropped,
    Entry,
    Holder,
    Key,
    One,
    Passed,
    Reached,
    Recorded,
    one_of,
    read,
)

__all__ = ["Begun", "History"]


class Begun(msgspec.Struct):
    """An ask that is recorded. `age`: seconds since then, when the journal was read."""

    position: int
    asked: Asked
    age: float
    task: UUID | None
    again: bool = False  # it was given up, or its failure dropped: it goes on
    reborn: bool = False  # so since the function has a new life: with one for itself
    abandoned: int | None = None  # where that is recorded
    came: bool = False
    optional: bool = False  # asked after a failure that was dropped


class History:
    """The journal, read once. `next_position` is where the next entry goes; `later` are the places
    of children that failed, and run again in the next life."""

    def __init__(self, steps: Sequence[Step] = (), ages: Sequence[float] = ()) -> None:
        self.next_position = steps[-1].position + 1 if steps else 0
        self.begun: dict[Key, Begun] = {}
        self.times = Counter[Key]()  # how often each was asked
        self.later: frozenset[int] = frozenset()
        self._lives: set[int | None] = set()
        self._values: dict[Key, Recorded] = {}
        self._value_places: dict[Key, int] = {}  # of those that the code must come to again
        self._batches: list[list[Arrival]] = []
        self._places: list[int] = []  # of each batch in the journal
        self._spare: dict[int, list[Arrival]] = {}  # by moments, in their order
        self._moments: dict[int, int] = {}  # of each ask in it
        self._passed: list[Arrival] = []  # recorded, but not asked for when its turn came
        self._missed: list[Arrival] = []  # given up when its turn came
        self.deeds = Deeds()
        self._ages: dict[int, float] = {}
        self._at = 0
        self._by_position: dict[int, Begun] = {}
        self._signals: dict[UUID, int] = {}  # which ask each came for, the last of them last
        self._heard: dict[int, One] = {}  # the other way round
        self._returned: dict[int, One] = {}  # of asks that were given up meanwhile
        self._mistakable: dict[Key, Key] = {}  # sleeps that go on, and those of another length
        for step, age in zip(steps, ages, strict=True):
            self._read(step.position, read(step), age)
            self._ages[step.position] = age
        self.consumed = self._surely_consumed()

    def _read(self, position: int, entry: Entry, age: float) -> None:
        begun = self._by_position
        match entry:
            case Asked():
                begun[position] = Begun(position, entry, age, entry.task)
                self.begun[entry.key] = begun[position]
                self.times[entry.key] += 1
                self.deeds.add(Deed(position, "asked", entry.key))
            case Holder():
                begun[entry.ask].task = entry.task
            case Abandoned():
                for ask in entry.asks:
                    begun[ask].abandoned = position
                    self._give_back(ask)
                for key in [begun[ask].asked.key for ask in entry.asks] + entry.steps:
                    self.deeds.add(Deed(position, "gave up", key))
            case Passed():
                place = position if entry.before is None else entry.before
                for past in entry.all:
                    self.deeds.add(Deed(place, "passed", past))
            case Recorded(what="value"):
                self._values[entry.key] = entry
                self._value_places[entry.key] = position
            case Recorded():
                one = one_of(entry, position)
                self._add(position, [Arrival(entry.key, one)])
            case Came():
                for one in entry.all:
                    begun[one.ask].came, begun[one.ask].again = True, False
                    if one.signal is not None and begun[one.ask].abandoned is None:
                        self._signals.pop(one.signal, None)
                        self._signals[one.signal], self._heard[one.ask] = one.ask, one
                self._add(position, [Arrival(begun[o.ask].asked.key, o) for o in entry.all])
            case Reached():
                self._add(position, self._from_spare(frozenset(entry.asks)))
            case Dropped():
                self.drop(entry)
            case Again():
                for ask in entry.asks:
                    begun[ask].again = False

    def _surely_consumed(self) -> frozenset[UUID]:
        """Signals that have left the queue: with what was written after they had come. Not those
        that were given up just then."""
        return frozenset(list(self._signals)[:-1])

    def _give_back(self, ask: int) -> None:
        """It did not hear of its signal any more."""
        one = self._heard.pop(ask, None)
        if one and one.signal is not None and self._signals.get(one.signal) == ask:
            del self._signals[one.signal]
            self._returned[ask] = one

    def _hear_after_all(self, void: int) -> None:
        """What was given up from here on was not; but behind the cut nothing comes by itself."""
        left = {arrival.one.ask for batch in self._batches for arrival in batch}
        for ask, one in list(self._returned.items()):
            at = self._by_position[ask].abandoned
            if one.signal is not None and ask in left and at is not None and at >= void:
                del self._returned[ask]
                self._signals[one.signal], self._heard[ask] = ask, one

    @property
    def returned(self) -> dict[UUID, Arrival]:
        """Signals that were given back, and nobody has heard of: they may have left the queue."""
        return {
            one.signal: Arrival(self._by_position[ask].asked.key, one)
            for ask, one in self._returned.items()
            if one.signal is not None and one.signal not in self._signals
        }

    def _is_for_others(self, one: One) -> bool:
        """A signal that was given back: somebody else has heard of it, or will."""
        return one.signal is not None and self._signals.get(one.signal) != one.ask

    def _add(self, position: int, batch: list[Arrival]) -> None:
        """What was asked behind a cut, and goes on, is known by its answer only."""
        self._batches.append(batch)
        self._places.append(position)
        for arrival in batch:
            if not self.deeds.is_known("asked", arrival.key):
                self.deeds.add(Deed(position, "asked", arrival.key))

    def _from_spare(self, asks: Collection[int]) -> list[Arrival]:
        moments = {self._moments.pop(ask) for ask in asks if ask in self._moments}
        taken: list[Arrival] = []
        for moment in sorted(moments):
            batch = self._spare[moment]
            taken += [one for one in batch if one.one.ask in asks]
            if left := [one for one in batch if one.one.ask not in asks]:
                self._spare[moment] = left
            else:
                del self._spare[moment]
        return taken

    def _to_spare(self, moment: int, batch: list[Arrival]) -> None:
        if batch:
            self._spare[moment] = batch
            self._moments |= {one.one.ask: moment for one in batch}

    # ── what is dropped ──────────────────────────────────────────────────────────────────────

    def drop(self, entry: Dropped) -> None:
        """Everything that is younger than the first of these depends on it, perhaps: what was
        done, such as telling somebody, is known where it is asked for again."""
        asks = frozenset(entry.asks)
        self.later = frozenset(entry.later)
        self._lives.add(entry.life)
        self._from_spare(asks)
        cut = self._cut(asks)
        if entry.void is not None:
            self._hear_after_all(entry.void)
        gone_on = {b.asked.key for b in self._by_position.values() if b.position in asks}
        self.deeds.drop(cut, entry.void, gone_on)
        ends = min((place for place in (cut, entry.void) if place is not None), default=None)
        if ends is not None:
            places = self._value_places
            self._value_places = {key: place for key, place in places.items() if place < ends}
        for begun in self._by_position.values():
            place = begun.position
            begun.optional = begun.optional or (cut is not None and place > cut)
            at = begun.abandoned
            if place in asks or (at is not None and cut is not None and at > cut):
                begun.again, begun.came, begun.abandoned = True, False, None
                begun.reborn = entry.life is not None

    def _cut(self, asks: frozenset[int]) -> int | None:
        """Where the order ends from now on."""
        dropped = (any(one.one.ask in asks for one in batch) for batch in self._batches)
        first = next((place for place, is_it in enumerate(dropped) if is_it), None)
        if first is None:
            return None
        cut = self._places[first]
        for place, batch in zip(self._places[first + 1 :], self._batches[first + 1 :], strict=True):
            left = [one for one in batch if one.one.ask not in asks]
            self._to_spare(place, [one for one in left if not self._is_for_others(one.one)])
        kept = [one for one in self._batches[first] if one.one.ask not in asks]
        self._batches[first:] = [kept] if kept else []
        self._places[first:] = [cut] if kept else []
        return cut

    def rebirth(self, life: int) -> Dropped | None:
        """What a new life begins with: children that failed run again, and those that were under
        way, since they may have been ended with the function. None: it has begun before. Written
        also where there are none: what this life itself begins is not its former one's."""
        if life in self._lives:
            return None
        mine = (b for b in self.begun.values() if b.asked.what == "child")
        under_way = {
            b.position
            for b in mine
            if not b.came and b.abandoned is None and b.task == b.asked.task
        }
        return Dropped(sorted(self.later | under_way), life=life)

    # ── what is handed out ───────────────────────────────────────────────────────────────────

    @property
    def is_exhausted(self) -> bool:
        return self._at == len(self._batches) and not self._passed

    @property
    def is_told(self) -> bool:
        """Whether all that was recorded has been told, and done again."""
        return self.is_over and not self._missed and self.deeds.are_done

    @property
    def is_over(self) -> bool:
        """Whether it has nothing more to tell, not even answers that may never be asked for."""
        return self._at == len(self._batches) and not (self._passed or self._spare)

    def sleeps(self, key: Key, seconds: float) -> None:
        """Today's code asks for this one. Of another length than recorded, it may be the one that
        still goes on, where one before that was taken out."""
        begun = self.begun.get(key)
        if begun is None or begun.asked.seconds == seconds:
            return
        if meant := self._asleep.get((key.branch, seconds)):
            name = f"sleep of {begun.asked.seconds:g} s"
            self._mistakable.setdefault(meant, key._replace(name=name))

    @cached_property
    def _asleep(self) -> dict[tuple[str, float | None], Key]:
        """Sleeps that have not come, by branch and length."""
        keys = (begun.asked for begun in self.open if begun.asked.what == "sleep")
        return {(asked.key.branch, asked.seconds): asked.key for asked in keys}

    def mistaken(self, asked: Container[Key]) -> list[Key]:
        """What was taken out, as it seems: another sleep would have its answer."""
        return [other for meant, other in self._mistakable.items() if meant not in asked]

    def value(self, key: Key) -> Recorded | None:
        return self._values.get(key)

    def untaken(self, key: Key, kind: str, taken: Container[Key]) -> list[Key]:
        """Values of this kind that its branch took from other lines, and has not taken again."""
        return [
            other
            for other in self._value_places
            if other.branch == key.branch
            and other.name.startswith(f"{kind} in")
            and other not in taken
        ]

    def lacks(self, is_done: Callable[[Deed], bool]) -> Deed | None:
        """What the function had done when it was told what is next, and has not done again."""
        until = self._places[self._at] if self._at < len(self._places) else None
        return self.deeds.next(is_done, until)

    def comes_next(self, open: Container[Key]) -> bool:
        """Whether something is told next that is asked for."""
        batch = self._batches[self._at] if self._at < len(self._batches) else []
        return any(arrival.key in open for arrival in batch)

    def comes_before(self, value: Key) -> bool:
        """Whether something is told next that came before this."""
        place = self._value_places.get(value)
        return place is not None and self._at < len(self._places) and self._places[self._at] < place

    def seconds_until(self, deed: Deed) -> float:
        """From the first entry on, when it was done for the first time."""
        first = next(iter(self._ages.values()), 0.0)
        return first - self._ages.get(deed.place, first)

    def is_next(self, key: Key) -> Arrival | None:
        """What comes next, where it is the answer to this ask alone."""
        if self._passed or self._at == len(self._batches):
            return None
        batch = self._batches[self._at]
        if len(batch) != 1 or batch[0].key != key:
            return None
        self._at += 1
        return batch[0]

    def take(self, open: Container[Key], given_up: Container[Key]) -> list[Arrival] | None:
        """What reached the function next, as far as it is asked for; None: all is told."""
        for place, arrival in enumerate(self._passed):
            if arrival.key in open:
                del self._passed[place]
                return [arrival]
        if self._at == len(self._batches):
            return None
        batch = self._batches[self._at]
        self._at += 1
        here: list[Arrival] = []
        for arrival in batch:
            if arrival.key in given_up or self._came_too_late(arrival.key):
                self._missed.append(arrival)
            else:
                (here if arrival.key in open else self._passed).append(arrival)
        return here

    def take_missed(self, open: Container[Key]) -> list[Arrival]:
        """Steps that were given up once, and today are not: they never run again."""
        for place, arrival in enumerate(self._missed):
            if arrival.key in open and self.kind_of(arrival) == "step":
                del self._missed[place]
                return [arrival]
        return []

    def _came_too_late(self, key: Key) -> bool:
        """Whether the function gave it up just before it was told."""
        return self.deeds.is_known("gave up", key)

    def take_spare(self, open: Container[Key]) -> list[Arrival]:
        """What came at one moment once, as far as it is asked for again. When all else is told."""
        for batch in self._spare.values():
            if here := {arrival.one.ask for arrival in batch if arrival.key in open}:
                return self._from_spare(here)
        return []

    # ── what is left ─────────────────────────────────────────────────────────────────────────

    @property
    def untold(self) -> list[Arrival]:
        """Recorded, and not handed out: it is not its turn, or nobody waits for it any more."""
        rest = [one for batch in self._batches[self._at :] for one in batch]
        return self._missed + self._passed + rest

    def kind_of(self, arrival: Arrival) -> str:
        begun = self._by_position.get(arrival.one.ask)
        return begun.asked.what if begun else "step"

    def unasked(self, asked: Container[Key]) -> list[Key]:
        """What today's code never asked: recorded answers, children that were begun, and a sleep
        whose place another has."""
        left = self._passed + [one for batch in self._batches[self._at :] for one in batch]
        keys = [one.key for one in left if not self._is_abandoned(one.key)]
        keys += [begun.asked.key for begun in self.open if begun.asked.what == "child"]
        keys = [key for key in dict.fromkeys(keys) if key not in asked]
        return keys + self.mistaken(asked)

    def has_passed(self, asked: Container[Key]) -> bool:
        """Whether all that is recorded lies behind the code that asked for so much."""
        return self.is_exhausted and all(begun.asked.key in asked for begun in self.open)

    @property
    def open(self) -> Iterator[Begun]:
        """What was begun, and did neither come nor was given up."""
        return (
            b for b in self.begun.values() if not (b.came or b.optional) and b.abandoned is None
        )

    def _is_abandoned(self, key: Key) -> bool:
        begun = self.begun.get(key)
        return begun is not None and begun.abandoned is not None
