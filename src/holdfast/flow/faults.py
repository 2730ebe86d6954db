"""Failures that reached a durable function, and whether it did anything about them.

A failure was acted on where something was asked for afterwards by code that may know of it: the
branch that it was raised in, those above it, those that took a step because of it, and what they
began since. Other branches were under way already, and go on by themselves.
"""

from collections.abc import Iterable, Mapping

from holdfast.flow.asks import Ask
from holdfast.flow.branches import Branch, Family

__all__ = ["Faults"]


class _Fault:
    __slots__ = ("ask", "fresh", "heard", "number")

    def __init__(self, ask: Ask, number: int, together: frozenset[str] | None) -> None:
        """`together`: the branches that were answered at the same moment; None: it is no answer."""
        self.ask, self.number = ask, number
        self.fresh = together  # until all that it causes has happened
        self.heard: frozenset[Branch] = frozenset()

    def is_known_to(self, branch: Branch) -> bool:
        """As far as can be told: rather too many than too few."""
        while branch.born >= self.number and branch.above:
            branch = branch.above
        path = self.ask.key.branch
        if path == branch.path or path.startswith(branch.path + "/") or branch in self.heard:
            return True
        return self.fresh is not None and branch.path not in self.fresh


class Faults:
    """Of one attempt. `open`: nothing was done about them. `told`: the places of all asks whose
    failures reached the function."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self.open: list[_Fault] = []
        self.told: set[int | None] = set()
        self._moves: Mapping[Branch, int] | None = None

    @property
    def asks(self) -> list[Ask]:
        return [fault.ask for fault in self.open]

    def reached(self, failed: Iterable[Ask], together: Iterable[Ask]) -> None:
        """These failed, and the function hears of it now, together with other answers."""
        self.settle()
        self._moves = {b: b.watched.moves for b in self._family.alive if b.watched}
        self._family.faults += 1
        paths = frozenset(ask.key.branch for ask in together)
        for ask in failed:
            self.told.add(ask.position)
            self.open.append(_Fault(ask, self._family.faults, paths))

    def given_up(self, ask: Ask) -> None:
        """The function waits for this no longer: perhaps because of a failure."""
        self._family.faults += 1
        self.open.append(_Fault(ask, self._family.faults, None))

    def settle(self) -> None:
        """The function can go no further: whoever was to hear of the last failures has."""
        if self._moves is None:
            return
        before, self._moves = self._moves, None
        moved = {b for b in self._family.alive if b.watched and b.watched.moves != before.get(b)}
        for fault in self.open:
            if fault.fresh is not None:
                fault.heard = frozenset(b for b in moved if b.path not in fault.fresh)
                fault.fresh = None

    def acted(self, branch: Branch) -> None:
        """This branch asks for something new."""
        self.open = [fault for fault in self.open if not fault.is_known_to(branch)]
