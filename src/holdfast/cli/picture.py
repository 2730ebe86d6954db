"""One look at the whole fleet, and how it is drawn."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.cli.cells import Cells, safe, span
from holdfast.cli.leases import left
from holdfast.cli.queues import QUEUES
from holdfast.cli.render import drawn
from holdfast.cli.workers import WORKERS
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import LeaseShape, QueueView, RecoveryView, Stats, WorkerView

__all__ = ["Picture", "frame"]

_SHARE = 4  # each of the four parts gets its share of the screen


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn, as of one moment."""

    stats: Stats
    workers: list[WorkerView]
    leases: list[LeaseShape]
    queues: list[QueueView]
    recoveries: list[RecoveryView]

    @classmethod
    async def of(cls, desk: Desk) -> "Picture":
        stats, workers, leases, queues, recoveries = await asyncio.gather(
            desk.stats(), desk.workers(), desk.leases(), desk.queues(), desk.recoveries(limit=10)
        )
        return cls(
            stats=stats,
            workers=[worker for worker in workers if worker.status != "stopped"],
            leases=sorted(leases.data, key=lambda lease: lease.seconds_left),
            queues=queues,
            recoveries=recoveries,
        )


def frame(picture: Picture, height: int | None = None, trouble: str | None = None) -> Any:
    """As many rows of each part as fit."""
    from rich.console import Group
    from rich.text import Text

    rows = max((height - 20) // _SHARE, 3) if height else 50
    cells = Cells(relative=True, now=picture.stats.server_time)
    parts: list[Any] = [Text(safe(trouble or _summary(picture.stats)), style="bold")]
    queues = [column.title for column in QUEUES]
    workers = [column.title for column in WORKERS]
    parts += _part("queues", queues, [_row(QUEUES, q) for q in picture.queues], rows, cells)
    parts += _part("workers", workers, [_row(WORKERS, w) for w in picture.workers], rows, cells)
    leases = ["left", "holder", "type", "task", "held for", "fence"]
    parts += _part(
        "leases", leases, [_lease(e, picture.stats) for e in picture.leases], rows, cells
    )
    taken = ["taken back", "lost by", "task", "fence"]
    found = [(r.at, r.worker_id, r.task_id, r.fence) for r in picture.recoveries]
    parts += _part("recoveries", taken, found, rows, cells)
    return Group(*parts)


def _summary(stats: Stats) -> str:
    workers, leases, totals = stats.workers, stats.leases, stats.totals
    return (
        f"holdfast  {totals.claimable} claimable, {totals.running} running, {totals.failed} failed"
        f"  ·  workers {workers.active} active, {workers.draining} draining, {workers.stale} stale"
        f"  ·  leases {leases.active} active, {leases.expired} expired"
    )


def _part(
    name: str, titles: Sequence[str], found: Sequence[Sequence[Any]], most: int, cells: Cells
) -> list[Any]:
    from rich.text import Text

    if not found:
        return [Text(f"\n{name}: none")]
    more = f" ({len(found) - most} more)" if len(found) > most else ""
    return [drawn(titles, found[:most], f"{name}{more}", cells)]


def _row(columns: Sequence[Any], found: Any) -> list[Any]:
    return [column.value(found) for column in columns]


def _lease(lease: LeaseShape, stats: Stats) -> list[Any]:
    held = (stats.server_time - lease.started_at).total_seconds()
    return [
        left(lease), lease.worker_id, lease.type, lease.task_id, span(max(held, 0)), lease.fence
    ]  # fmt: skip
