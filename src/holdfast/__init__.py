"""Durable tasks for Python: SQLite by default, PostgreSQL for many machines."""

from holdfast.app import Holdfast
from holdfast.client import TaskHandle
from holdfast.context import Context, current
from holdfast.errors import (
    HoldfastError,
    InvalidInput,
    LeaseLost,
    NonRetryable,
    Snooze,
    TaskCancelled,
    TaskFailed,
    UnknownTask,
)
from holdfast.observer import MetricsRecorder, Observer
from holdfast.observers.log import install_structured_logging
from holdfast.processing import Job, ProcessingWorker
from holdfast.registry import durable
from holdfast.tasks.retry import RetryPolicy
from holdfast.version import __version__
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
