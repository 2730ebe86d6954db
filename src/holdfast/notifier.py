"""Hints between processes: look, there may be something for you. Kept by `holdfast.notifiers`.

A hint is never a promise. Losing all of them costs time, never work: whoever listens also polls.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

__all__ = ["EVERYTHING", "Hint", "Notifier"]


class Hint(NamedTuple):
    """`work`: tasks may wait in the queue `name`. `cancel`: the task `name` was asked to stop."""

    kind: Literal["work", "cancel"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Hint | None":
        """None for what a newer release may say."""
        match text.partition(":"):
            case ("work" | "cancel") as kind, ":", name if name:
                return cls(kind, name)
            case _:
                return None


EVERYTHING = Hint("work", "*")  # after a gap in which hints may have been missed


class Notifier(Protocol):
    """Belongs to the event loop that first uses it."""

    def tell(self, hints: Iterable[Hint]) -> None:
        """Send them soon, gathered with others that are sent meanwhile. Returns at once; what
        cannot be sent is dropped, with a word in the log."""
        ...

    async def listen(self, heard: Callable[[Hint], None]) -> None:
        """Call `heard` for every hint from now on, until `close`. Answers once it listens; where
        that fails it goes on trying by itself, and says `EVERYTHING` when it hears again."""
        ...

    async def close(self) -> None: ...
