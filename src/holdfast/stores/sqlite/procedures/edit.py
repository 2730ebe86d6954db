"""Changing a task that has not begun."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.stores.sqlite.procedures.later import enter
from holdfast.stores.sqlite.session import Session, micros, micros_of

__all__ = ["edit"]


class _Old(NamedTuple):
    lane: int
    np: int
    max_tries: int | None
    expires_at: int | None
    run_at: int | None
    created_at: int
    key: str | None
    pool: int
    is_over: bool


class _Place(NamedTuple):
    """Where it stands; `run_at`: of what waits for its time."""

    seq: int | None
    fence: int
    tries: int
    alone: bool
    child: bool
    key: str | None
    run_at: int | None


def edit(
    s: Session,
    *,
    id: UUID,
    seen_lane: int,
    seen_np: int,
    seen_max_tries: int | None,
    seen_expires_at: datetime | None,
    seen_run_at: datetime | None,
    lane: int,
    np: int,
    max_tries: int | None,
    new_expiry: bool,
    expires: float | None,
    new_time: bool,
    delay: float | None,
    run_at: datetime | None,
) -> list[tuple[str]]:
    """`begun`: it runs, has ended, or is about to; `changed`: it is not as it was seen. Only a new
    place costs it its turn."""
    found = s.row("edit.seen", id=id)
    if found is None:
        return [("begun",)]
    old = _Old(*found)
    stood, place = _stands(s, id, old)
    if place is None or old.is_over:
        return [("begun",)]
    seen = (seen_lane, seen_np, seen_max_tries, _micros(seen_expires_at), _micros(seen_run_at))
    if seen != (*old[:4], place.run_at or old.run_at or old.created_at):
        return [("changed",)]
    if max_tries not in (None, old.max_tries) and max_tries <= place.tries:
        return [("changed",)]  # tried once more since it was seen
    due = place.run_at or s.now
    if new_time:
        due = s.now + micros(delay or 0) if run_at is None else micros_of(run_at)
    expires_at = None if expires is None else s.now + micros(expires)
    s.run(
        "edit.task",
        id=id,
        lane=lane,
        np=np,
        max_tries=max_tries,
        run_at=due if new_time else old.run_at,
        expires_at=expires_at if new_expiry else old.expires_at,
    )
    if new_expiry:
        s.run("forget.expiry", id=id)
        if expires_at is not None:
            s.run("expiry.add", id=id, expires_at=expires_at)
    if new_time or (lane, np) != (old.lane, old.np):
        _leave(s, id, old, stood, place)
        _wait(s, id, old, place, lane=lane, np=np, run_at=due)
        if due <= s.now:
            enter(s, [id.bytes])
    return [("edited",)]


def _stands(s: Session, id: UUID, old: _Old) -> tuple[str, _Place | None]:
    places: dict[str, dict[str, Any]] = {
        "later": {},
        "blocked": {"pool": old.pool, "key": old.key, "np": old.np},
        "ready": {"lane": old.lane, "np": old.np},
    }
    for name, at in places.items():
        if found := s.row(f"edit.{name}", id=id, **at):
            return name, _Place(*found)
    return "", None


def _leave(s: Session, id: UUID, old: _Old, stood: str, place: _Place) -> None:
    match stood:
        case "later":
            s.rows("withdraw.later", id=id)
        case "blocked":
            s.rows("withdraw.blocked", pool=old.pool, key=old.key, np=old.np, seq=place.seq)
        case _:
            s.rows("withdraw.ready", lane=old.lane, np=old.np, seq=place.seq)
            if place.key is not None:
                s.run("nudge.add", pool=old.pool, key=place.key, freed=1)


def _wait(
    s: Session, id: UUID, old: _Old, place: _Place, *, lane: int, np: int, run_at: int
) -> None:
    s.run(
        "later.add",
        id=id,
        run_at=run_at,
        lane=lane,
        fence=place.fence,
        np=np,
        tries=place.tries,
        alone=place.alone,
        child=place.child,
        key=old.key,
        waiting=None,
        wakes=1,
        watched=None,
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros_of(at)
