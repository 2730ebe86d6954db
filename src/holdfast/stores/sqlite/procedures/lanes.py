"""Lanes, interned: what waits alike gets a number, once."""

from typing import Any

from holdfast.stores.sqlite.session import Session

__all__ = ["intern_lanes", "pools"]


def intern_lanes(
    s: Session,
    *,
    queues: list[str],
    types: list[str],
    versions: list[str],
    tags: list[str],
    requires: list[str],
    tenants: list[str],
) -> list[tuple[list[int]]]:
    """Tags and requirements as JSON texts. Answers the numbers in the order of the lanes."""
    names = ("queue", "type", "version", "tags", "requires", "tenant")
    columns = zip(queues, types, versions, tags, requires, tenants, strict=True)
    lanes = [dict(zip(names, parts, strict=True)) for parts in columns]
    ids = [s.value("lane.find", **lane) for lane in lanes]
    if None in ids:
        s.run("lane.moved")
    return [([_add(s, lane) if id is None else id for id, lane in zip(ids, lanes, strict=True)],)]


def _add(s: Session, lane: dict[str, Any]) -> int:
    s.run("lane.add_queue", queue=lane["queue"])
    id: int = s.value("lane.add", **lane)
    s.run("lane.join_pool", id=id, type=lane["type"], tenant=lane["tenant"])
    return id


def pools(s: Session) -> dict[int, int]:
    """Which pool of keys each lane belongs to."""
    return dict(s.rows("lane.pools"))
