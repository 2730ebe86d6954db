"""Hints as messages: one a line, UTF-8, and no message longer than the carrier allows."""

import re
from collections.abc import Iterable, Iterator

from holdfast.notifier import EVERYTHING, Hint

__all__ = ["pack", "unpack"]

_UNFIT = re.compile(r"[\n\0\ud800-\udfff]")


def pack(hints: Iterable[Hint], limit: int) -> list[str]:
    """As few messages as will do. What cannot be written on a line of one becomes EVERYTHING."""
    messages: list[str] = []
    room = 0
    for line in dict.fromkeys(_line(hint, limit) for hint in hints):
        size = len(line.encode()) + 1
        if size <= room:
            messages[-1] += f"\n{line}"
            room -= size
        else:
            messages.append(line)
            room = limit - size + 1
    return messages


def unpack(message: str | bytes) -> Iterator[Hint]:
    """Whatever is no hint is passed over: anyone may write to a channel."""
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    for line in text.split("\n"):
        if (hint := Hint.parse(line)) is not None:
            yield hint


def _line(hint: Hint, limit: int) -> str:
    line = str(hint)
    fit = _UNFIT.search(line) is None and len(line.encode()) <= limit
    return line if fit else str(EVERYTHING)
