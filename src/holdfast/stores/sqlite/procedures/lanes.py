"""Lanes, interned: what waits alike gets a number, once."""

from typing import Any

from holdfast.stores.sqlite.session import Session

__all__ = ["intern_lane", "pools"]


def intern_lane(
    s: Session,
    *,
    queue: str,
    type: str,
    version: str,
    tags: list[str],
    requires: list[str],
    tenant: str,
) -> list[tuple[int]]:
    parts: dict[str, Any] = {
        "queue": queue,
        "type": type,
        "version": version,
        "tags": tags,
        "requires": requires,
        "tenant": tenant,
    }
    found = s.value("lane.find", **parts)
    if found is None:
        s.run("lane.moved")
        s.run("lane.add_queue", queue=queue)
        found = s.value("lane.add", **parts)
        s.run("lane.join_pool", id=found, type=type, tenant=tenant)
    return [(found,)]


def pools(s: Session) -> dict[int, int]:
    """Which pool of keys each lane belongs to."""
    return dict(s.rows("lane.pools"))
