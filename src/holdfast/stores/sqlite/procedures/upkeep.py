"""Chores: what expired, what was not heard of, what ended long ago."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.stores.sqlite.procedures.endings import EXPIRED
from holdfast.stores.sqlite.procedures.records import roll_up_early
from holdfast.stores.sqlite.procedures.steer import withdraw
from holdfast.stores.sqlite.session import Session, bytes_of, micros, micros_of

__all__ = [
    "cleanup",
    "discard",
    "expire",
    "forget_workers",
    "lapsed",
    "mark_stale",
    "move_schedule",
    "see_schedules",
    "take_turn",
]

_LEFT_BEHIND = ("attempts", "refusals", "progress", "steps", "signals", "wakes", "expiry", "logs")


def lapsed(s: Session, *, batch: int) -> list[tuple[Any, ...]]:
    """Leases past their end, with what the decision about them needs."""
    return [
        (*row[:7], *map(bool, row[7:12]), row[12]) for row in s.rows("lapsed.leases", batch=batch)
    ]


def expire(s: Session, *, batch: int) -> list[tuple[Any, ...]]:
    """What runs just now is its worker's to stop, and looked at again a little later: its settle
    may have put it back. Answers the dead letters that nobody has told of: each once, since its row
    goes with it; and whom to wake."""
    due = [id for (id,) in s.rows("expiry.due", batch=batch)]
    if not due:
        return [(None, None, None, None)]
    error_type, error = EXPIRED
    ids = [UUID(bytes=id) for id in due]
    ((_, parents),) = withdraw(s, ids=ids, state="failed", error_type=error_type, error=error)
    letters = s.each("expiry.untold", id=due)
    s.each("expiry.done", id=due)
    s.each("expiry.again", id=due)
    return [(*([row[n] for row in letters] for n in range(3)), parents)]


def mark_stale(s: Session, *, after: float) -> list[tuple[int]]:
    return [(len(s.rows("worker.mark_stale", after=micros(after))),)]


def forget_workers(s: Session, *, after: float, batch: int) -> list[tuple[int]]:
    return [(s.run("worker.forget", after=micros(after), batch=batch),)]


def take_turn(s: Session, *, chore: str, every: float) -> list[tuple[Any, ...]]:
    return s.rows("chore.take_turn", chore=chore, every=micros(every))


def see_schedules(
    s: Session,
    *,
    types: list[str],
    crons: list[str],
    timezones: list[str],
    firsts: list[datetime],
) -> list[tuple[list[int]]]:
    said = zip(types, crons, timezones, map(micros_of, firsts), strict=True)
    found = [
        s.rows("schedule.see", type=type, cron=cron, timezone=timezone, first=first)
        for type, cron, timezone, first in said
    ]
    return [([next_at for ((next_at,),) in found],)]


def move_schedule(
    s: Session, *, type: str, cron: str, timezone: str, seen: datetime, next: datetime
) -> list[tuple[Any, ...]]:
    return s.rows(
        "schedule.move",
        type=type,
        cron=cron,
        timezone=timezone,
        seen=micros_of(seen),
        next=micros_of(next),
    )


def cleanup(
    s: Session, *, retention: float, dead_letters: float | None, batch: int
) -> list[tuple[int]]:
    kept = micros(retention)
    old = [id for (id,) in s.rows("cleanup.ended", retention=kept, batch=batch)]
    if dead_letters is not None:
        rows = s.rows("cleanup.failed", retention=micros(dead_letters), batch=batch)
        old += [id for (id,) in rows]
    forget_workers(s, after=retention, batch=batch)
    s.run("chore.forget", after=kept)
    s.run("schedule.forget", after=kept)
    return [(len(_forget(s, old)),)]


def discard(s: Session, *, ids: list[UUID]) -> list[tuple[list[bytes]]]:
    return [(_forget(s, [id for (id,) in s.each("discard.failed", id=bytes_of(ids))]),)]


def _forget(s: Session, ids: Sequence[bytes]) -> list[bytes]:
    """Tasks with all that belongs to them. Not what a living parent may still ask for."""
    free = {id: (key, tenant) for id, key, tenant in s.each("forget.free", id=ids)}
    roll_up_early(s, list(free))
    gone = [id for (id,) in s.each("forget.outcome", id=list(free))]
    s.each("forget.task", id=gone)
    keyed = [(id, *free[id]) for id in gone if free[id][0] is not None]
    s.each(
        "key.give_back",
        id=[k[0] for k in keyed],
        key=[k[1] for k in keyed],
        tenant=[k[2] for k in keyed],
    )
    for what in _LEFT_BEHIND:
        s.each(f"forget.{what}", id=gone)
    return gone
