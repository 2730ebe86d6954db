"""`holdfast workers`: who works, and how busy they are."""

from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.cells import span
from holdfast.cli.groups import Near
from holdfast.cli.render import Column, say
from holdfast.desk.desk import Desk
from holdfast.desk.leases import all_leases
from holdfast.desk.shapes import LeaseShape, WorkerView

__all__ = ["WORKERS", "workers"]

WORKERS = (
    Column("worker", lambda w: w.worker_id),
    Column("tenant", lambda w: w.tenant_id),
    Column("state", lambda w: w.status.upper() if w.status == "stale" else w.status),
    Column("slots", lambda w: f"{w.active}/{w.max_concurrent}"),
    Column("queues", lambda w: w.queues or "all"),
    Column("heartbeat", lambda w: w.last_heartbeat),
    Column("loop lag", lambda w: span(w.loop_lag_seconds)),
    Column("claimed", lambda w: w.tasks_acquired),
    Column("recovered", lambda w: w.tasks_recovered),
    Column("version", lambda w: w.version),
)
_GONE = ("stopped",)


@click.group(cls=Near)
def workers() -> None:
    """Workers: who is there, how busy, and to drain them."""


@workers.command()
@click.option("--all", "everyone", is_flag=True, help="Also those that stopped in good order.")
@asks
def ls(at: Asking, everyone: bool) -> None:
    """Workers that are there, and those that were not heard of: stale."""
    found = at.ask(lambda desk: desk.workers())
    at.out.many([w for w in found if everyone or w.status not in _GONE], WORKERS)


@workers.command()
@click.argument("worker")
@asks
def show(at: Asking, worker: str) -> None:
    """One WORKER, by its name or its registry id, and what it holds."""
    from holdfast.cli.leases import LEASES
    from holdfast.cli.render import table

    async def both(desk: Desk) -> tuple[WorkerView, list[LeaseShape]]:
        found = await desk.worker(worker)
        return found, await all_leases(desk, worker=found.id)

    found, held = at.ask(both)
    at.out.one(found, _facts)
    if at.out.for_people and held:
        click.echo()
        titles = [column.title for column in LEASES]
        rows = [[column.value(lease) for column in LEASES] for lease in held]
        table(titles, rows, cells=at.out.cells)


@workers.command()
@click.argument("worker")
@asks
def drain(at: Asking, worker: str) -> None:
    """Ask a WORKER, by its name or its registry id, to claim nothing more, finish what it holds,
    and leave.

    It hears so with its next heartbeat, or at once.
    """
    found = at.ask(lambda desk: desk.drain(worker))
    if at.out.for_people:
        at.out.line(found.worker_id)
        say("asked to drain; `holdfast workers ls` shows when it has")
    else:
        at.out.one(found, _facts)


def _facts(worker: WorkerView) -> Iterator[tuple[str, Any]]:
    yield "worker", worker.worker_id
    yield "id", worker.id
    yield "tenant", worker.tenant_id
    yield "state", worker.status
    yield "host", f"{worker.hostname}, pid {worker.pid}"
    yield "version", worker.version
    yield "slots", f"{worker.active} of {worker.max_concurrent} taken"
    yield "queues", worker.queues or "all"
    yield "tags", worker.tags or None
    yield "capabilities", worker.capabilities or None
    yield "tenants", worker.tenants or None
    yield "group", worker.group_id or None
    yield "knows", worker.types
    yield "priority", worker.priority or None
    yield "claimed", worker.tasks_acquired
    yield "recovered", worker.tasks_recovered
    yield "polls every", span(worker.poll_interval_seconds)
    yield "lease", span(worker.lease_seconds) if worker.lease_seconds else None
    yield "loop lag", span(worker.loop_lag_seconds)
    yield "started", worker.started_at
    yield "heartbeat", worker.last_heartbeat
