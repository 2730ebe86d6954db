"""What a store answers, as the shapes of the desk."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.answers import Event, LeaseView, QueueLoad, Recovery, WorkerRecord
from holdfast.desk.papers import (
    AuditView,
    KeyView,
    LogView,
    OperationView,
    OperationWish,
    SeriesPoint,
)
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
from holdfast.records import AuditRecord, KeyRecord, LogRecord, Operation, Rollup
from holdfast.tasks.task import Attempt, Failure, Task

__all__ = [
    "Matches",
    "attempt_view",
    "audit_view",
    "error_view",
    "event_view",
    "joined",
    "key_view",
    "lease_shape",
    "log_view",
    "operation_view",
    "plan_view",
    "queue_numbers",
    "queue_view",
    "recovery_view",
    "series_point",
    "task_view",
    "worker_share",
    "worker_view",
]


_SAMPLE, _MOST_TYPES = 10, 20  # of a plan


def task_view(task: Task) -> TaskView:
    return TaskView(
        id=task.id,
        type=task.type,
        status=task.status.value,
        queue=task.queue,
        priority=task.priority,
        tenant_id=task.tenant,
        user_id=task.user_id,
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
        expires_at=task.expires_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        progress=task.progress,
        progress_message=task.progress_message,
        last_error=task.last_error,
        last_error_type=task.last_error_type,
    )


def error_view(failure: Failure | None) -> ErrorView | None:
    if failure is None:
        return None
    return ErrorView(type=failure.type, message=failure.message, traceback=failure.traceback)


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
        lease_seconds=worker.lease,
        started_at=worker.started_at,
        last_heartbeat=worker.last_heartbeat,
        tenant_id=worker.tenant,
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


def joined(one: WorkerShare, later: WorkerShare) -> WorkerShare:
    """Two workers of one name: what each holds and did counts once; the rest is the later one's."""
    return WorkerShare(
        status=later.status,
        active_jobs=one.active_jobs + later.active_jobs,
        max_jobs=one.max_jobs + later.max_jobs,
        active_leases=one.active_leases + later.active_leases,
        tasks_acquired_total=one.tasks_acquired_total + later.tasks_acquired_total,
        tasks_recovered_total=one.tasks_recovered_total + later.tasks_recovered_total,
        worker_poll_interval_seconds=later.worker_poll_interval_seconds,
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


def key_view(record: KeyRecord) -> KeyView:
    return KeyView(
        id=record.id,
        name=record.name,
        tenant_id=record.tenant,
        scopes=list(record.scopes),
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        last_used_at=record.last_used_at,
        revoked_at=record.revoked_at,
        valid=record.is_valid,
    )


def audit_view(record: AuditRecord) -> AuditView:
    return AuditView(
        seq=record.seq,
        at=record.at,
        actor=record.actor,
        tenant_id=record.tenant,
        verb=record.verb,
        subject=record.subject,
        detail=record.detail,
    )


def log_view(line: LogRecord) -> LogView:
    return LogView(**msgspec.structs.asdict(line))


def operation_view(found: Operation) -> OperationView:
    return OperationView(
        id=found.id,
        action=found.action,
        filter={name: value for name, value in found.filter.items() if value is not None},
        rate=found.rate,
        state=found.state,
        matched=found.matched,
        capped=found.capped,
        done=found.done,
        failed=found.failed,
        actor=found.actor,
        tenant_id=found.tenant,
        reason=found.reason,
        error=found.error,
        created_at=found.created_at,
        ended_at=found.ended_at,
    )


class Matches:
    """What a filter finds: how many, of which types, and the first of them. `capped`: or more."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.sample: list[UUID] = []
        self.capped = False

    def add(self, tasks: Sequence[Task]) -> None:
        self.types.update(task.type for task in tasks)
        self.sample += [task.id for task in tasks[: _SAMPLE - len(self.sample)]]

    def __len__(self) -> int:
        return self.types.total()


def plan_view(
    wish: OperationWish, matched: Matches, actor: str, tenant: str | None
) -> OperationView:
    """Of one that is not begun."""
    filter = msgspec.to_builtins(wish.filter)
    return OperationView(
        id=None,
        action=wish.action,
        filter={name: value for name, value in filter.items() if value is not None},
        rate=wish.rate,
        state="planned",
        matched=len(matched),
        capped=matched.capped,
        done=0,
        failed=0,
        actor=actor,
        tenant_id=tenant,
        reason=wish.reason,
        error=None,
        created_at=None,
        ended_at=None,
        types=dict(matched.types.most_common(_MOST_TYPES)),
        sample=matched.sample,
    )


def series_point(found: Rollup) -> SeriesPoint:
    return SeriesPoint(
        at=found.at,
        done=found.done,
        failed=found.failed,
        cancelled=found.cancelled,
        retried=found.retried,
        lost=found.lost,
        wait=list(found.wait),
        wait_seconds=found.wait_seconds,
        run=list(found.run),
        run_seconds=found.run_seconds,
    )
