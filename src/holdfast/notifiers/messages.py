"""Hints as messages: one a line, UTF-8, and no message longer than the carrier allows."""

import re
from collections.abc import Callable, Iterable, Iterator

from holdfast.notifier import EVERYTHING, Hint

__all__ = ["Marks", "pack", "unpack"]

_UNFIT = re.compile(r"[\n\0\ud800-\udfff]")


class Marks:
    """What messages say of themselves in their first line, and whether one that says so was heard
    before by another way. By default they say nothing, and none was."""

    def write(self) -> str:
        """No hint, so that whoever does not know it passes it over."""
        return ""

    def is_known(self, _mark: str) -> bool:
        return False


def pack(hints: Iterable[Hint], limit: int, mark: str = "") -> list[str]:
    """As few messages as will do, each with the mark. What cannot be written on a line of one
    becomes EVERYTHING."""
    messages = _fill(hints, limit - len(f"{mark}\n") if mark else limit)
    return [f"{mark}\n{message}" for message in messages] if mark else messages


def _fill(hints: Iterable[Hint], limit: int) -> list[str]:
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


def unpack(message: str | bytes, is_known: Callable[[str], bool] | None = None) -> Iterator[Hint]:
    """Whatever is no hint is passed over: anyone may write to a channel. And all of what is known
    by its mark."""
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    lines = text.split("\n")
    if is_known and is_known(lines[0]):
        return
    for line in lines:
        if (hint := Hint.parse(line)) is not None:
            yield hint


def _line(hint: Hint, limit: int) -> str:
    line = str(hint)
    fit = _UNFIT.search(line) is None and len(line.encode()) <= limit
    return line if fit else str(EVERYTHING)
