"""What waits for its time or a wake, and how it moves on to where workers look."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.stores.sqlite.procedures.endings import EXPIRED, end, wake
from holdfast.stores.sqlite.session import Rows, Session, bytes_of, json

__all__ = ["enter", "in_vain", "promote", "sweep_wakes", "wake_up", "watchers"]


def promote(s: Session, *, batch: int) -> list[tuple[int]]:
    due = [id for (id,) in s.rows("later.due", batch=batch)]
    enter(s, due)
    return [(len(due),)]


def wake_up(s: Session, *, ids: list[UUID]) -> list[tuple[int]]:
    """Of those that wait for each other one goes on, and is told so."""
    come = [id for (id,) in s.each("wake.come", id=bytes_of(ids))]
    enter(s, come)
    return [(len(come) + _free(s, s.each("watching", id=bytes_of(ids))),)]


def watchers(s: Session, *, ids: list[UUID]) -> Rows:
    return s.rows("watchers", ids=json([id.hex for id in ids]))


def in_vain(s: Session, *, id: UUID, ids: list[UUID]) -> Rows:
    found = s.rows("in_vain", id=id, ids=json([id.hex for id in ids]))
    return [(task, bool(forgotten)) for task, forgotten in found]


def sweep_wakes(s: Session, *, batch: int) -> list[tuple[int]]:
    come = [id for (id,) in s.rows("wake.all_come", batch=batch)]
    enter(s, come)
    return [(len(come) + _free(s, s.rows("watching.all")),)]


def _free(s: Session, watching: Rows) -> int:
    """Moves those on who wait in vain; each sees whom the last one moved."""
    moved = 0
    for id, watched in watching:
        if s.rows("in_vain", id=id, ids=watched):
            enter(s, [id])
            moved += 1
    return moved


def enter(s: Session, ids: Sequence[bytes]) -> None:
    """Into the lane, behind everybody who waits there already. Cancelled and expired ones end."""
    gone = s.each("later.take", id=ids)
    if not gone:
        return
    judged = s.each("later.judge", id=[g[0] for g in gone], lane=[g[1] for g in gone])
    verdicts = {id: rest for id, *rest in judged}
    rows = [(*g, *verdicts[g[0]]) for g in gone if g[0] in verdicts]
    for state, error_type, error in (("cancelled", None, None), ("failed", *EXPIRED)):
        ended = [row for row in rows if row[8] == state]
        end(s, [(row[0], row[2], row[4]) for row in ended], state, error_type, error)
        wake(s, [row[9] for row in ended if row[6]], urgent=True)
    _queue_up(s, [row for row in rows if row[8] is None])


def _queue_up(s: Session, rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        return
    places = [(*row, seq) for row, seq in zip(rows, s.numbers("place", len(rows)), strict=True)]
    free = [row for row in places if row[7] is None]
    s.each("ready.add", **_columns(free))
    keyed = [row for row in places if row[7] is not None]
    s.each(
        "blocked.add",
        **_columns(keyed),
        pool=[row[10] for row in keyed],
        key=[row[7] for row in keyed],
    )
    nudged = list(dict.fromkeys((row[10], row[7]) for row in keyed))
    s.each("nudge.add", pool=[n[0] for n in nudged], key=[n[1] for n in nudged], freed=0)


def _columns(rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {
        "id": [row[0] for row in rows],
        "lane": [row[1] for row in rows],
        "fence": [row[2] for row in rows],
        "np": [row[3] for row in rows],
        "tries": [row[4] for row in rows],
        "alone": [row[5] for row in rows],
        "child": [row[6] for row in rows],
        "seq": [row[11] for row in rows],
    }
