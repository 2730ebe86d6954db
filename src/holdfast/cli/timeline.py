"""The attempts of a task as a picture in text. Pure: facts and the time are handed in."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from holdfast.cli.cells import span
from holdfast.desk.shapes import AttemptView, EventView, TaskView

__all__ = ["ASCII", "DRAWN", "Part", "Signs", "bar", "parts", "spent"]

_PAUSES = {
    "lost": "lost",
    "retry": "backoff",
    "snoozed": "backoff",
    "waiting": "waiting",
}


class Part(NamedTuple):
    """What a task did for a while. `what`: wait run lost backoff waiting."""

    what: str
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max((self.end - self.start).total_seconds(), 0.0)


class Signs(NamedTuple):
    """What each part is drawn with."""

    wait: str
    run: str
    lost: str
    backoff: str
    waiting: str
    empty: str


DRAWN = Signs(wait="·", run="█", lost="░", backoff="~", waiting="┄", empty=" ")
ASCII = Signs(wait=".", run="#", lost="x", backoff="~", waiting="-", empty=" ")


def parts(task: TaskView, attempts: Sequence[AttemptView], now: datetime) -> list[Part]:
    """From its creation to its end, or to now, without a gap."""
    ran = [attempt for attempt in attempts if attempt.started_at is not None]
    over = task.finished_at or now
    if not ran:
        return [Part("wait", task.created_at, max(over, task.created_at))]
    found = [Part("wait", task.created_at, _start(ran[0]))]
    for attempt, following in pairwise([*ran, None]):
        assert attempt is not None
        ended = attempt.ended_at or over
        found.append(Part("lost" if attempt.ended == "lost" else "run", _start(attempt), ended))
        until = _start(following) if following else over
        if until > ended:
            found.append(Part(_PAUSES.get(attempt.ended or "", "wait"), ended, until))
    return found


def _start(attempt: AttemptView) -> datetime:
    assert attempt.started_at is not None
    return attempt.started_at


def bar(found: Sequence[Part], width: int, signs: Signs) -> str:
    """All parts on one line, to scale; each of them is seen."""
    whole = sum(part.seconds for part in found)
    drawn = [(part, part.seconds / whole * width if whole else 0.0) for part in found]
    return "".join(getattr(signs, part.what) * max(round(length), 1) for part, length in drawn)


def row(found: Sequence[Part], only: Part, width: int, signs: Signs) -> str:
    """One part in its place."""
    first, last = found[0].start, found[-1].end
    whole = (last - first).total_seconds()
    if whole <= 0:
        return getattr(signs, only.what).ljust(width)  # type: ignore[no-any-return]
    begin = min(int((only.start - first).total_seconds() / whole * width), width - 1)
    length = max(round(only.seconds / whole * width), 1)
    sign: str = getattr(signs, only.what)
    return (signs.empty * begin + sign * min(length, width - begin)).ljust(width)


def spent(found: Sequence[Part]) -> str:
    """`took 3m 12s (wait 41s, run 2m 8s, lost 23s)`."""
    sums: dict[str, float] = {}
    for part in found:
        sums[part.what] = sums.get(part.what, 0.0) + part.seconds
    told = ", ".join(f"{what} {span(seconds)}" for what, seconds in sums.items())
    return f"{span(sum(sums.values()))} ({told})"


def lines(
    task: TaskView,
    attempts: Sequence[AttemptView],
    refused: Sequence[EventView],
    now: datetime,
    *,
    signs: Signs,
    width: int = 40,
) -> list[str]:
    """One line for each part, in its place on the common scale, then what came too late."""
    found = parts(task, attempts, now)
    numbers = {_start(a): n for n, a in enumerate([a for a in attempts if a.started_at], 1)}
    by_start = {_start(a): a for a in attempts if a.started_at}
    told = []
    for part in found:
        attempt = by_start.get(part.start) if part.what in ("run", "lost") else None
        name = f"#{numbers[part.start]}" if attempt else part.what
        words = _told(attempt) if attempt else ""
        drawing = row(found, part, width, signs)
        told.append(f"{name:<8} {drawing} {span(part.seconds):>8}  {words}".rstrip())
    told += [
        f"late {event.verb or 'write'} by the holder of fence {event.fence} refused at "
        f"{event.at:%H:%M:%S}"
        for event in refused
    ]
    return told


def _told(attempt: AttemptView) -> str:
    ended = attempt.ended or "running"
    holder = attempt.worker_id or "a worker"
    by = f" by {attempt.by}" if attempt.by in ("operator", "recovery") else ""
    error = f": {attempt.error.type}: {attempt.error.message}" if attempt.error else ""
    return f"{ended}{by}  {holder}  fence {attempt.fence}{error}"
