"""One example of each shape that people send or see most, checked against it when imported."""

from typing import Any

import msgspec

from holdfast.desk import shapes
from holdfast.http.problems import Fault, ProblemView

__all__ = ["EXAMPLES"]

_ID = "01936f2e-8c3a-7b52-9d41-3f6f2a7c1e90"
_AT = "2030-01-15T09:30:00Z"
_TASK = {
    "id": _ID,
    "type": "shop:charge",
    "status": "pending",
    "queue": "money",
    "priority": 5,
    "tenant_id": "default",
    "user_id": "u-512",
    "version": "",
    "tags": ["billing"],
    "requires": [],
    "try_count": 0,
    "max_tries": 3,
    "idempotency_key": "order-7",
    "parent_id": None,
    "cancel_requested": False,
    "reason": None,
    "locked_by": None,
    "lease_timeout": None,
    "created_at": _AT,
    "run_at": _AT,
    "expires_at": None,
    "started_at": None,
    "finished_at": None,
    "progress": None,
    "progress_message": None,
    "last_error": None,
    "last_error_type": None,
}
_QUEUE = {
    "queue": "money",
    "paused": False,
    "pending": 3,
    "claimable": 2,
    "running": 1,
    "load": 3,
    "scheduled": 1,
    "waiting": 0,
    "blocked": 0,
    "failed": 0,
    "expired_leases": 0,
    "oldest_pending_age_seconds": 0.4,
    "capped": False,
}
_LEASE = {
    "task_id": _ID,
    "type": "shop:charge",
    "queue": "money",
    "worker_id": "worker-1",
    "fence": 1,
    "try_count": 1,
    "started_at": _AT,
    "lease_timeout": _AT,
    "seconds_left": 241.5,
}
_EVENT = {
    "seq": 42,
    "type": "task.done",
    "task_id": _ID,
    "fence": 1,
    "worker_id": "worker-1",
    "by": "holder",
    "at": _AT,
    "error": None,
    "verb": None,
}
_PROBLEM = ProblemView(
    type="urn:holdfast:problem:invalid_body",
    title="Unprocessable Content",
    status=422,
    detail="Expected `int`, got `str` at /priority",
    code="invalid_body",
    errors=[Fault(detail="Expected `int`, got `str`", pointer="/priority")],
)


def _checked(kind: Any, value: Any) -> Any:
    return msgspec.to_builtins(msgspec.convert(value, kind))


EXAMPLES: dict[Any, Any] = {
    kind: _checked(kind, value)
    for kind, value in {
        shapes.NewTask: {"type": "shop:charge", "kwargs": {"order": 7}, "user_id": "u-512"},
        shapes.TaskView: _TASK,
        shapes.TaskPage: {"data": [_TASK], "next_cursor": None, "has_more": False},
        shapes.LeasePage: {"data": [_LEASE], "next_cursor": None, "has_more": False},
        shapes.Accepted: {"task": _TASK, "created": True},
        shapes.QueueView: _QUEUE,
        shapes.EventView: _EVENT,
        shapes.EventPage: {"data": [_EVENT], "last": 42},
        shapes.Changed: {"changed": [_ID], "unchanged": [], "status": "cancelled"},
        shapes.WhyView: {
            "why": "queue 'money' is paused",
            "advice": 'resume it: holdfast queues resume money or app.resume_queue("money")',
        },
        shapes.RecoveryRun: {
            "recovered": 1,
            "dead_lettered": 0,
            "task_ids": [_ID],
            "took_ms": 2.5,
            "dry_run": False,
        },
    }.items()
} | {ProblemView: msgspec.to_builtins(_PROBLEM)}
