"""Hints between processes: look, there may be something for you. Kept by `holdfast.notifiers`.

A hint is never a promise. Losing all of them costs time, never work: whoever listens also polls.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

__all__ = ["EVERYTHING", "Hint", "Notifier", "channel_of"]


class Hint(NamedTuple):
    """`work`: tasks may wait in the queue `name`. `cancel`: the task `name` was asked to stop.
    `wake`: something may have come for the durable function `name`. `drain`: the worker with the
    registry id `name` is to leave."""

    kind: Literal["work", "cancel", "wake", "drain"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Hint | None":
        """None for what a newer release may say."""
        match text.partition(":"):
            case ("work" | "cancel" | "wake" | "drain") as kind, ":", name if name:
                return cls(kind, name)
            case _:
                return None


# Look into all queues, and whether anything was cancelled: hints may have been missed, or were too
# many to name. No queue has this name.
EVERYTHING = Hint("work", "*")


class Notifier(Protocol):
    """Belongs to the event loop that first uses it."""

    def tell(self, hints: Iterable[Hint]) -> None:
        """Send them soon, each once, together with all that is told before the last send is done.
        Returns at once and never raises; what cannot be sent waits, bounded, for the next try,
        with a word in the log."""
        ...

    async def listen(self, heard: Callable[[Hint], None]) -> None:
        """Call `heard`, on this loop, for every hint from now on, also our own, until `leave`.
        Answers once it listens; where that fails it goes on trying by itself, and says `EVERYTHING`
        when it hears again. Where trying is no use it says so in the log, and nothing is heard."""
        ...

    def leave(self, heard: Callable[[Hint], None]) -> None:
        """Call this one no more. A stranger may leave too."""
        ...

    async def close(self) -> None:
        """What was told just before may still leave, for a second. Twice is as good as once."""
        ...


def channel_of(schema: str) -> str:
    """Where hints go by PostgreSQL's NOTIFY."""
    return f"holdfast_{schema}"
