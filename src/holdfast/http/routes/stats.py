"""Numbers of the whole: for people, for autoscalers, for Prometheus."""

from typing import Annotated

import msgspec
from msgspec import Meta
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from holdfast.app.probes import worker_stats
from holdfast.desk.leases import all_leases
from holdfast.desk.shapes import Stats, WorkerView
from holdfast.http.fields import Label
from holdfast.http.metrics import fleet
from holdfast.http.rendering import json
from holdfast.http.routing import Ask, Routes
from holdfast.tasks.names import check_labels

__all__ = ["routes"]

routes = Routes("stats")


class Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queues: (
        Annotated[
            str,
            Meta(max_length=2000, description="Queues to be named in any case: `mail,video`."),
        ]
        | None
    ) = None


class WhichWorker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    worker_id: Label | None = None


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it says of itself. Nulls: only the worker's own process knows."""

    worker_id: str
    state: str
    is_running: bool
    active_jobs: int
    max_jobs: int
    utilization: float
    active_job_ids: list[str]
    lease_duration_seconds: float | None
    heartbeat_interval_seconds: float | None
    tasks_acquired_total: int
    tasks_recovered_total: int
    poll_interval_seconds: float
    loop_lag_seconds: float


class AllWorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, where one was asked for or one lives here; else all that are alive."""

    workers: list[WorkerStats]


@routes.get("/v1/stats", "/distributed/stats", scope="fleet:read", whole=True, query=Named,
            answers={200: Stats})  # fmt: skip
async def show_stats(ask: Ask) -> Response:
    """Every known queue with plain numbers at fixed paths, workers, leases, recoveries."""
    given = (one.strip() for one in (ask.query.queues or "").split(","))
    return json(await ask.desk.stats(check_labels("queue", (one for one in given if one))))


@routes.get(
    "/worker/stats",
    scope="fleet:read",
    whole=True,
    query=WhichWorker,
    answers={200: (WorkerStats, AllWorkerStats)},
    errors=(404,),
)
async def show_worker_stats(ask: Ask) -> Response:
    """One worker by its name; or the one that lives in this process; or all that are alive."""
    if ask.query.worker_id is not None:
        return json(await _stats(ask, await ask.desk.worker(ask.query.worker_id)))
    here = [one for one in ask.house.app.worker_status_overview()["workers"] if "max_jobs" in one]
    if len(here) == 1 and ask.caller.tenant is None:
        return json(msgspec.convert(worker_stats(here[0]), WorkerStats))
    found = [one for one in await ask.desk.workers() if one.status not in ("stopped", "stale")]
    return json(AllWorkerStats(workers=[await _stats(ask, one) for one in found[:100]]))


async def _stats(ask: Ask, view: WorkerView) -> WorkerStats:
    held = await all_leases(ask.desk, worker=view.id)
    return WorkerStats(
        worker_id=view.worker_id,
        state=view.status,
        is_running=view.status not in ("starting", "stale", "stopped"),
        active_jobs=view.active,
        max_jobs=view.max_concurrent,
        utilization=view.utilization,
        active_job_ids=[str(lease.task_id) for lease in held],
        lease_duration_seconds=view.lease_seconds or None,
        heartbeat_interval_seconds=None,
        tasks_acquired_total=view.tasks_acquired,
        tasks_recovered_total=view.tasks_recovered,
        poll_interval_seconds=view.poll_interval_seconds,
        loop_lag_seconds=view.loop_lag_seconds,
    )


@routes.get("/metrics", scope="fleet:read", whole=True, answers={200: str}, media="text/plain")
async def show_metrics(ask: Ask) -> Response:
    """The fleet for Prometheus, as text or OpenMetrics."""
    render, media = choose_encoder(ask.header("accept") or "")
    return Response(render(fleet(await ask.desk.stats())), headers={"Content-Type": media})
