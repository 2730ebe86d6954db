"""Where one task stands, and which limits it passes."""

from typing import Any
from uuid import UUID

from msgspec.json import decode

from holdfast.stores.sqlite.session import Session

__all__ = ["standing", "standing_gates"]

_BEHIND_A_KEY = 10  # times as far as in a lane


def standing(s: Session, *, id: UUID, cap: int) -> list[tuple[Any, ...]]:
    """In ready and blocked a task is found only by walking its line, so no further than needed."""
    row = s.row("standing.task", id=id)
    if row is None:
        return []
    place, queue, type, version, tags, requires, tenant, key, pool, due, paused, lane, *rest = row
    ahead = None
    if place is None:
        place, ahead = _in_line(s, id.bytes, lane, pool, key, cap)
    labels = decode(tags), decode(requires)
    return [(place, queue, type, version, *labels, tenant, key, pool, due, paused, ahead, *rest)]


def _in_line(
    s: Session, id: bytes, lane: int, pool: int, key: str | None, cap: int
) -> tuple[str, int]:
    line = [found for (found,) in s.rows("standing.in_lane", lane=lane, cap=cap)]
    if id in line:
        return "ready", line.index(id)
    if key is None:
        return "ready", cap
    far = _BEHIND_A_KEY * cap
    line = [found for (found,) in s.rows("standing.of_key", pool=pool, key=key, cap=far)]
    if id in line:
        return "blocked", min(line.index(id), cap)
    # Whose key has even more waits there too.
    return ("blocked" if len(line) == far else "ready"), cap


def standing_gates(
    s: Session,
    *,
    id: UUID,
    type: str,
    queue: str,
    tenant: str,
    pool: int | None,
    key: str | None,
    most: int,
) -> list[tuple[Any, ...]]:
    """How much of each limit is taken, and by whom where it is full."""
    found = []
    for gate, kind, name, max_running, running, max_per_key, opens in s.rows(
        "standing.gates", type=type, queue=queue, tenant=tenant
    ):
        of_key = None
        if key is not None and max_per_key is not None:
            of_key = s.value("standing.let_in", pool=pool, key=key)
        full = max_running is not None and running >= max_running
        key_full = of_key is not None and of_key >= max_per_key
        who = {"id": id, "gate": gate, "pool": pool, "key": key, "most": most}
        occupants = (
            [held for (held,) in s.rows("standing.occupants", full=full, key_full=key_full, **who)]
            if full or key_full
            else []
        )
        rate_opens = opens if opens is not None and opens > 0 else None
        found.append((kind, name, max_running, running, max_per_key, of_key, rate_opens, occupants))
    return found
