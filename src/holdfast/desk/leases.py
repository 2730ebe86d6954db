"""All leases, however many pages they fill."""

from uuid import UUID

from holdfast.desk.desk import Desk
from holdfast.desk.shapes import LeaseShape

__all__ = ["all_leases"]

_PAGE = 1000


async def all_leases(
    desk: Desk, *, expired: bool = False, worker: str | None = None, most: int | None = None
) -> list[LeaseShape]:
    """Those that end first at the top; `most`: so many are enough."""
    found: dict[UUID, LeaseShape] = {}
    cursor = None
    while True:
        limit = _PAGE if most is None else min(most - len(found), _PAGE)
        page = await desk.leases(expired=expired, worker=worker, cursor=cursor, limit=limit)
        found |= {lease.task_id: lease for lease in page.data}  # one may be renewed, and come again
        cursor = page.next_cursor
        if cursor is None or len(found) == most:
            return sorted(found.values(), key=lambda lease: lease.seconds_left)
