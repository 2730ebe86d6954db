"""Durable tasks for Python: SQLite by default, PostgreSQL for many machines."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client import TaskHandle
    from holdfast.context import Context, current
    from holdfast.errors import (
        HoldfastError,
        InvalidInput,
        LeaseLost,
        NonRetryable,
        Snooze,
        StepFailed,
        TaskCancelled,
        TaskFailed,
        UnknownTask,
    )
    from holdfast.observer import MetricsRecorder, Observer
    from holdfast.observers.log import install_structured_logging
    from holdfast.processing import Job, ProcessingWorker
    from holdfast.registry import durable
    from holdfast.tasks.retry import RetryPolicy
    from holdfast.work.status import WorkerLifecycle

__all__ = [
    "Context",
    "Holdfast",
    "HoldfastError",
    "InvalidInput",
    "Job",
    "LeaseLost",
    "MetricsRecorder",
    "NonRetryable",
    "Observer",
    "ProcessingWorker",
    "RetryPolicy",
    "Snooze",
    "StepFailed",
    "TaskCancelled",
    "TaskFailed",
    "TaskHandle",
    "UnknownTask",
    "WorkerLifecycle",
    "__version__",
    "current",
    "durable",
    "install_structured_logging",
]

# Looked up when first used: importing a part of the house does not import all of it.
_HOMES = {
    "Holdfast": "holdfast.app",
    "TaskHandle": "holdfast.client",
    "Context": "holdfast.context",
    "current": "holdfast.context",
    "HoldfastError": "holdfast.errors",
    "InvalidInput": "holdfast.errors",
    "LeaseLost": "holdfast.errors",
    "NonRetryable": "holdfast.errors",
    "Snooze": "holdfast.errors",
    "StepFailed": "holdfast.errors",
    "TaskCancelled": "holdfast.errors",
    "TaskFailed": "holdfast.errors",
    "UnknownTask": "holdfast.errors",
    "MetricsRecorder": "holdfast.observer",
    "Observer": "holdfast.observer",
    "install_structured_logging": "holdfast.observers.log",
    "Job": "holdfast.processing",
    "ProcessingWorker": "holdfast.processing",
    "durable": "holdfast.registry",
    "RetryPolicy": "holdfast.tasks.retry",
    "WorkerLifecycle": "holdfast.work.status",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
