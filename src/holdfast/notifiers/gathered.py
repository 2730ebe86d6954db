"""Hints that wait to be passed on: each once, and never more than a bounded number."""

from collections.abc import Iterable

from holdfast.notifier import EVERYTHING, Hint

__all__ = ["CAP", "Gathered"]

CAP = 1000


class Gathered:
    """Where there are more than `CAP`, or `EVERYTHING` is among them, that one stands for all."""

    def __init__(self) -> None:
        self._hints: dict[Hint, None] = {}  # a set that keeps the order

    def __bool__(self) -> bool:
        return bool(self._hints)

    def add(self, hints: Iterable[Hint]) -> None:
        for hint in hints:
            if EVERYTHING in self._hints:
                return
            self._hints[hint] = None
            if hint == EVERYTHING or len(self._hints) > CAP:
                self._hints = {EVERYTHING: None}

    def take(self) -> list[Hint]:
        """All of them; afterwards none waits."""
        hints, self._hints = list(self._hints), {}
        return hints
