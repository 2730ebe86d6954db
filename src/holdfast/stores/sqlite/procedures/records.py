"""What the faces keep: requests, logs, numbers per minute, and how it is forgotten."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import Any
from uuid import UUID

from msgspec.json import decode

from holdfast.errors import InvalidInput
from holdfast.records import BOUNDS
from holdfast.stores.sqlite.session import Session, json, micros, numbers_of

__all__ = [
    "audits",
    "begin_request",
    "forget_records",
    "is_walled",
    "log",
    "roll_up",
    "roll_up_early",
    "rollups",
    "wall",
]

_BOUNDS = [micros(bound) for bound in BOUNDS]
_COUNTED = {"done": "done", "failed": "failed", "cancelled": "cancelled", "retry": "retried"}


def audits(
    s: Session, *, after: int | None, before: int | None, tenant: str | None, limit: int
) -> list[tuple[Any, ...]]:
    if after is not None:
        return s.rows("audits.after", after=after, tenant=tenant, limit=limit)
    return s.rows("audits.before", before=before, tenant=tenant, limit=limit)


def begin_request(
    s: Session,
    *,
    scope: str,
    key: str,
    digest: bytes,
    token: UUID,
    patience: float,
    kept: float,
) -> list[tuple[Any, ...]]:
    asked = {"scope": scope, "key": key, "digest": digest}
    spans = {"patience": micros(patience), "kept": micros(kept)}
    begun = s.rows("request.begin", **asked, token=token, **spans)
    if begun:
        return begun
    return [
        (said, None, None, None) if said == "other" else (said, *answer)
        for said, *answer in s.rows("request.find", **asked)
    ]


def log(
    s: Session,
    *,
    id: UUID,
    grant: UUID,
    positions: list[int],
    ages: list[float],
    levels: list[str],
    loggers: list[str],
    messages: list[str],
    most: int,
    most_bytes: int,
) -> list[tuple[bool]]:
    """As many lines as there is room for; the others are only counted."""
    room = s.row("log.room", id=id, grant=grant)
    if room is None:
        return [(False,)]
    fence, used, is_full, stored = room
    for position, age, level, logger, message in zip(
        positions, ages, levels, loggers, messages, strict=True
    ):
        used += len(message.encode()) + len(logger.encode()) if position > stored else 0
        if is_full or position > most or used > most_bytes:
            break
        if position > stored:
            line = {"level": level, "logger": logger, "message": message}
            at = s.now - micros(age)
            s.run("log.add", id=id, fence=fence, position=position, at=at, **line)
            stored = position
    if positions[-1] > stored:
        s.run("log.full", id=id, fence=fence, position=most + 1, seen=positions[-1])
    return [(True,)]


def roll_up(s: Session, *, after: int, upto: int) -> list[tuple[bool]]:
    """Whoever comes second finds the mark moved, and counts nothing."""
    s.run("rollup.start")
    if not s.rows("rollup.move", after=after, upto=upto):
        return [(False,)]
    _tally(s, s.rows("rollup.happened", after=after, upto=upto))
    return [(True,)]


def roll_up_early(s: Session, ids: Sequence[bytes]) -> None:
    """What is forgotten before its turn came to be counted."""
    mark = s.value("rollup.mark")
    if mark is None:  # nobody counts here
        return
    unseen = [seq for (seq,) in s.each("rollup.unseen", id=list(ids), after=mark)]
    rows = [s.rows("rollup.happened", after=seq - 1, upto=seq) for seq in unseen]
    _tally(s, chain.from_iterable(rows))


def _tally(s: Session, happened: Iterable[tuple[Any, ...]]) -> None:
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in happened:
        groups.setdefault(row[:4], []).append(row[4:])
    for home, rows in groups.items():
        _add(s, dict(zip(("minute", "queue", "type", "tenant"), home, strict=True)), rows)


def _add(s: Session, home: dict[str, Any], rows: Sequence[tuple[Any, ...]]) -> None:
    """`rows`: kind, by whom it ended, how many, and their waits and runs in microseconds."""
    kinds, lost = Counter[str](), 0
    waits, runs = list[int](), list[int]()
    for kind, ended_by, n, waited, ran in rows:
        kinds[kind] += n
        lost += n if ended_by == "recovery" else 0
        waits += numbers_of(waited)
        runs += numbers_of(ran)
    before = s.row("rollup.find", **home)
    old_wait, old_run = map(decode, before) if before else ((), ())
    s.run(
        "rollup.write",
        **home,
        **{column: kinds[kind] for kind, column in _COUNTED.items()},
        lost=lost,
        wait=json(_histogram(waits, old_wait)),
        wait_seconds=sum(waits) / 1e6,
        run=json(_histogram(runs, old_run)),
        run_seconds=sum(runs) / 1e6,
    )


def _histogram(spans: Iterable[int], old: Sequence[int]) -> list[int]:
    """How many are below each bound, but not below the one before; and then all others."""
    found = sorted(spans)
    below = [0, *(bisect_left(found, bound) for bound in _BOUNDS), len(found)]
    return [
        upto - before + then
        for before, upto, then in zip(below, below[1:], old or repeat(0), strict=False)
    ]


def rollups(
    s: Session,
    *,
    since: datetime,
    until: datetime,
    step: float,
    queue: str | None,
    type: str | None,
    tenant: str | None,
) -> list[tuple[Any, ...]]:
    asked = {"since": since, "until": until, "step": micros(step)}
    whose = {"queue": queue, "type": type, "tenant": tenant}
    waits: dict[int, list[int]] = {}
    runs: dict[int, list[int]] = {}
    for slot, _, wait, run in s.rows("rollup.buckets", **asked, **whose):
        waits.setdefault(slot, []).append(wait)
        runs.setdefault(slot, []).append(run)
    return [
        (*row[:6], waits[row[0]], row[6], runs[row[0]], row[7])
        for row in s.rows("rollup.sums", **asked, **whose)
    ]


def forget_records(
    s: Session, *, audits: float, requests: float, operations: float, rollups: float, batch: int
) -> list[tuple[int]]:
    forgotten = 0
    mark = s.value("audit.old", kept=micros(audits), batch=batch)
    if mark is not None:
        s.run("audit.mark", seq=mark)
        forgotten += s.run("audit.forget", seq=mark)
    forgotten += s.run("request.forget", kept=micros(requests), batch=batch)
    forgotten += s.run("operation.forget", kept=micros(operations), batch=batch)
    forgotten += s.run("rollup.forget", kept=micros(rollups), batch=batch)
    return [(forgotten,)]


def wall(s: Session, *, role: str) -> list[tuple[Any, ...]]:
    raise InvalidInput("SQLite has no roles; a wall between tenants needs PostgreSQL")


def is_walled(s: Session) -> list[tuple[bool]]:
    return [(False,)]
