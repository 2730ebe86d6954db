"""What a function did of itself, in the order of its journal: what it asked for, what it gave up,
which awaits of its own it left behind. Answers that came later wait for it in a replay."""

from collections.abc import Callable, Container
from typing import Literal, NamedTuple

from holdfast.flow.entries import Key, Past

__all__ = ["Deed", "Deeds"]


class Deed(NamedTuple):
    """`which`: the ask; or the await of its own that a branch left behind."""

    place: int
    what: Literal["asked", "gave up", "passed"]
    which: Key | Past

    def __str__(self) -> str:
        return f"{self.what} {self.which}"


class Deeds:
    """Read in order; what is done once stays done."""

    def __init__(self) -> None:
        self._all: list[Deed] = []
        self._known: set[tuple[str, Key | Past]] = set()
        self._at = 0
        self._is_sorted = True

    def add(self, deed: Deed) -> None:
        self._is_sorted = self._is_sorted and (not self._all or self._all[-1].place <= deed.place)
        self._all.append(deed)
        self._known.add(deed[1:])

    def drop(self, cut: int | None, void: int | None, gone_on: Container[Key | Past]) -> None:
        """All behind the cut may be otherwise now; all but asks, from `void` on; and these were not
        given up in the end."""
        self._all = [
            deed
            for deed in self._all
            if (cut is None or deed.place <= cut)
            and (deed.what == "asked" or void is None or deed.place < void)
            and not (deed.what == "gave up" and deed.which in gone_on)
        ]
        self._known = {deed[1:] for deed in self._all}

    def skip(self) -> None:
        """The first that is not done is waited for no longer; those behind it are."""
        self._at += 1

    @property
    def are_done(self) -> bool:
        return self._at >= len(self._all)

    def is_known(self, what: str, which: Key | Past) -> bool:
        return (what, which) in self._known

    def next(self, is_done: Callable[[Deed], bool], until: int | None = None) -> Deed | None:
        """The first that is not done yet, up to this place. Not beyond: a branch that is not born
        yet looks as one that has ended."""
        if not self._is_sorted:
            self._all.sort(key=lambda deed: deed.place)
            self._is_sorted = True
        while self._at < len(self._all):
            deed = self._all[self._at]
            if until is not None and deed.place > until:
                return None
            if not is_done(deed):
                return deed
            self._at += 1
        return None
