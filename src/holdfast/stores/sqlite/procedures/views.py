"""Questions of several statements, and answers put into the shapes that the store reads."""

from typing import Any
from uuid import UUID

from msgspec.json import decode

from holdfast.stores.sqlite.session import Session, bytes_of, instant_of

__all__ = [
    "events",
    "get",
    "list_ended",
    "list_of_user",
    "list_ready",
    "list_scheduled",
    "list_tasks",
    "queue_loads",
    "writers",
]


def get(s: Session, *, ids: list[UUID]) -> list[tuple[Any, ...]]:
    rows = sorted(s.each("task.get", id=bytes_of(ids)), key=_first, reverse=True)
    return [
        (UUID(bytes=row[0]), *row[1:5], decode(row[5]), decode(row[6]), *row[7:]) for row in rows
    ]


def list_tasks(
    s: Session, *, lanes: list[int], before: UUID | None, limit: int
) -> list[tuple[Any, ...]]:
    start = before and before.bytes
    rows = s.each("list.tasks", lane=lanes, before=start, limit=limit)
    return [(UUID(bytes=id),) for (id,) in sorted(rows, reverse=True)[:limit]]


def list_of_user(
    s: Session, *, lanes: list[int], user_id: str, before: UUID | None, limit: int
) -> list[tuple[Any, ...]]:
    start = before and before.bytes
    rows = s.each("list.of_user", lane=lanes, user_id=user_id, before=start, limit=limit)
    return [(UUID(bytes=id),) for (id,) in sorted(rows, reverse=True)[:limit]]


def list_ready(
    s: Session, *, lanes: list[int], np: int, seq: int, limit: int
) -> list[tuple[Any, ...]]:
    rows = s.each("list.ready", lane=lanes, np=np, seq=seq, limit=limit)
    rows.sort(key=lambda row: row[1:])
    return [(UUID(bytes=id), *place) for id, *place in rows[:limit]]


def list_scheduled(
    s: Session, *, lanes: list[int], run_at: Any, id: UUID | None, limit: int
) -> list[tuple[Any, ...]]:
    rows = s.rows("list.scheduled", lanes=lanes, run_at=run_at, id=id, limit=limit)
    return [(UUID(bytes=id), instant_of(run_at)) for id, run_at in rows]


def list_ended(
    s: Session, *, lanes: list[int], state: str, before: int, limit: int
) -> list[tuple[Any, ...]]:
    which = {} if state == "done" else {"state": state}
    name = "list.done" if state == "done" else "list.undone"
    rows = s.rows(name, lanes=lanes, before=before, limit=limit, **which)
    return [(UUID(bytes=id), seq) for id, seq in rows]


def events(s: Session, *, after: int, limit: int) -> list[tuple[Any, ...]]:
    """Each kind from its own index, then in order."""
    rows = [
        *s.rows("events.ended", after=after, limit=limit),
        *s.rows("events.attempts", after=after, limit=limit),
        *s.rows("events.refusals", after=after, limit=limit),
    ]
    return sorted(rows, key=_first)[:limit]


def queue_loads(s: Session, *, cap: int, tenant: str | None) -> list[tuple[Any, ...]]:
    """Each count reads at most `cap` rows, whosever they are. Where there may be more, they are
    floors, which the last column says."""
    whose = {"tenant": tenant}
    queues = s.rows("loads.queues", **whose)
    names = [name for name, _ in queues]
    ready: dict[str, int] = dict(s.each("loads.ready", queue=names, cap=cap, **whose))
    places = ("scheduled", "blocked", "waiting", "failed")
    counts = [s.rows(f"loads.{place}", cap=cap, **whose) for place in places]
    scheduled, blocked, waiting, failed = [{queue: n for queue, n, _ in c} for c in counts]
    held = {queue: numbers for queue, *numbers in s.rows("loads.held", **whose)}
    oldest: dict[str, float] = dict(s.rows("loads.oldest", **whose))
    read = [sum(n for *_, n in c) for c in counts]
    return [
        (
            name,
            paused,
            ready[name],
            scheduled.get(name, 0),
            blocked.get(name, 0),
            waiting.get(name, 0),
            *held.get(name, (0, 0)),
            failed.get(name, 0),
            oldest.get(name),
            max(ready[name], *read) >= cap,
        )
        for name, paused in queues
    ]


def writers(s: Session) -> list[tuple[Any, ...]]:
    """Nobody writes numbers out of order here."""
    return []


def _first(row: tuple[Any, ...]) -> Any:
    return row[0]
