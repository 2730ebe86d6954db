"""What a store answers, as the shapes of the desk."""

import msgspec

from holdfast.answers import Event, LeaseView, QueueLoad, Recovery, WorkerRecord
from holdfast.desk.shapes import (
    AttemptView,
    ErrorView,
    EventView,
    LeaseShape,
    QueueNumbers,
    QueueView,
    RecoveryView,
    TaskView,
    WorkerShare,
    WorkerView,
)
from holdfast.tasks.payload import decode
from holdfast.tasks.task import Attempt, Failure, Task

__all__ = [
    "attempt_view",
    "error_view",
    "event_view",
    "lease_shape",
    "queue_numbers",
    "queue_view",
    "recovery_view",
    "task_view",
    "worker_share",
    "worker_view",
]


class _Detail(msgspec.Struct):
    traceback: str | None = None


def task_view(task: Task) -> TaskView:
    return TaskView(
        id=task.id,
        type=task.type,
        status=task.status.value,
        queue=task.queue,
        priority=task.priority,
        tenant_id=task.tenant,
        version=task.version,
        tags=list(task.tags),
        requires=list(task.requires),
        try_count=task.try_count,
        max_tries=task.max_tries,
        idempotency_key=task.key,
        parent_id=task.parent,
        cancel_requested=task.cancel_requested,
        reason=task.reason,
        locked_by=task.locked_by,
        lease_timeout=task.lease_timeout,
        created_at=task.created_at,
        run_at=task.run_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        progress=task.progress,
        progress_message=task.progress_message,
        last_error=task.last_error,
    )


def error_view(failure: Failure | None) -> ErrorView | None:
    if failure is None:
        return None
    detail = decode(failure.detail, _Detail) if failure.detail else _Detail()
    return ErrorView(type=failure.type, message=failure.message, traceback=detail.traceback)


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        fence=attempt.fence,
        worker_id=attempt.worker_name,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        ended=attempt.ended,
        by=attempt.by,
        error=error_view(attempt.failure),
    )


def queue_view(load: QueueLoad) -> QueueView:
    return QueueView(
        queue=load.queue,
        paused=load.paused,
        pending=load.ready + load.scheduled + load.blocked,
        claimable=load.ready,
        running=load.running,
        load=load.ready + load.running,
        scheduled=load.scheduled,
        waiting=load.waiting,
        blocked=load.blocked,
        failed=load.failed,
        expired_leases=load.expired,
        oldest_pending_age_seconds=load.oldest_age or 0.0,
        capped=load.capped,
    )


def queue_numbers(view: QueueView) -> QueueNumbers:
    names = QueueNumbers.__struct_fields__
    return QueueNumbers(**{name: getattr(view, name) for name in names})


def worker_view(worker: WorkerRecord) -> WorkerView:
    return WorkerView(
        id=str(worker.id),
        worker_id=worker.name,
        hostname=worker.host,
        pid=worker.pid,
        status=worker.status,
        version=worker.version,
        queues=list(worker.queues),
        tags=list(worker.tags),
        capabilities=list(worker.capabilities),
        tenants=list(worker.tenants),
        group_id=worker.group_id,
        types=list(worker.types),
        priority=worker.priority,
        max_concurrent=worker.slots,
        active=worker.active,
        utilization=worker.active / max(worker.slots, 1),
        tasks_acquired=worker.tasks_acquired,
        tasks_recovered=worker.tasks_recovered,
        poll_interval_seconds=worker.poll_interval,
        loop_lag_seconds=worker.loop_lag,
        started_at=worker.started_at,
        last_heartbeat=worker.last_heartbeat,
    )


def worker_share(worker: WorkerRecord, leases: int) -> WorkerShare:
    return WorkerShare(
        status=worker.status,
        active_jobs=worker.active,
        max_jobs=worker.slots,
        active_leases=leases,
        tasks_acquired_total=worker.tasks_acquired,
        tasks_recovered_total=worker.tasks_recovered,
        worker_poll_interval_seconds=worker.poll_interval,
    )


def lease_shape(lease: LeaseView) -> LeaseShape:
    return LeaseShape(
        task_id=lease.task,
        type=lease.type,
        queue=lease.queue,
        worker_id=lease.worker_name,
        fence=lease.fence,
        try_count=lease.tries,
        started_at=lease.started_at,
        lease_timeout=lease.lease_timeout,
        seconds_left=lease.seconds_left,
    )


def recovery_view(found: Recovery) -> RecoveryView:
    return RecoveryView(
        seq=found.seq,
        task_id=found.task,
        worker_id=found.worker_name,
        fence=found.fence,
        started_at=found.started_at,
        at=found.at,
    )


def event_view(event: Event, workers: dict[int, str]) -> EventView:
    kind = "write.refused" if event.kind == "refused" else f"task.{event.kind}"
    return EventView(
        seq=event.seq,
        type=kind,
        task_id=event.task,
        fence=event.fence,
        worker_id=None if event.worker is None else workers.get(event.worker),
        by=event.by,
        at=event.at,
        error=event.error,
        verb=event.verb,
    )
