"""Durable tasks for Python: SQLite by default, PostgreSQL for many machines."""

__version__ = "0.1.0.dev0"

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
    "current",
    "durable",
    "install_structured_logging",
]
