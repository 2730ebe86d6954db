"""What workers do, as log records; and records that know which task they were written in."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from holdfast.answers import Recovered
from holdfast.context import Context, entered
from holdfast.observer import DeadLetter, Ended, Observer, Stuck
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import Claimed

__all__ = ["JsonFormatter", "LogObserver", "install_structured_logging"]

logger = logging.getLogger("holdfast.worker")
_formatter = logging.Formatter()


class LogObserver(Observer):
    """Claims, renewals, lost leases, failures and recoveries."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            for task in tasks:
                logger.debug(
                    "claimed %s (%s), fence %d", task.lease.task, task.lane.type, task.lease.fence
                )

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        for end in ended:
            failure = end.settlement.failure
            if failure is None or end.task.lease.task in refused:
                continue
            match end.settlement.verdict:
                case Verdict.FAILED:
                    logger.error(
                        "task %s (%s) failed for good after %d tries: %s: %s",
                        end.task.lease.task,
                        end.task.lane.type,
                        end.task.tries,
                        failure.type,
                        failure.message,
                    )
                case Verdict.RETRY:
                    logger.warning(
                        "task %s (%s) failed, try %d: %s: %s",
                        end.task.lease.task,
                        end.task.lane.type,
                        end.task.tries,
                        failure.type,
                        failure.message,
                    )

    def dead_lettered(self, letters: Sequence[DeadLetter]) -> None:
        for one in letters:
            logger.error("task %s (%s) failed for good: %s", one.task, one.type, one.reason)

    def renewed(self, kept: Sequence[UUID], lost: frozenset[UUID]) -> None:
        logger.debug("worker %s renewed %d leases, lost %d", self._worker, len(kept), len(lost))

    def stuck(self, tasks: Sequence[Stuck]) -> None:
        for one in tasks:
            logger.warning(
                "task %s (%s) is stuck: it runs for %.0f s on worker %s; %s",
                one.task,
                one.type,
                one.seconds,
                one.worker,
                "its lease is withdrawn" if one.withdrawn else "it is left alone",
            )

    def recovered(self, tasks: Sequence[Recovered]) -> None:
        for found in tasks:
            logger.warning(
                "recovered task %s: its worker stopped renewing %.1f s ago; it is %s now",
                found.lease.task,
                found.late,
                found.status,
            )


def fields_of(context: Context | None) -> dict[str, Any]:
    if context is None:
        return dict.fromkeys(_FIELDS, "")
    return {
        "holdfast_task_id": str(context.task_id),
        "holdfast_root_id": str(context.root),
        "holdfast_attempt": context.attempt,
        "holdfast_worker_id": context.worker_id,
        "holdfast_queue": context.queue,
        "holdfast_tenant": context.tenant,
    }


_FIELDS = (
    "holdfast_task_id", "holdfast_root_id", "holdfast_attempt", "holdfast_worker_id",
    "holdfast_queue", "holdfast_tenant",
)  # fmt: skip


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the task where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: v for name in _FIELDS if (v := getattr(record, name, "")) != ""}
        if record.exc_text:  # it was scrubbed, or comes from another process
            line["exception"] = record.exc_text
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _scrub(record: logging.LogRecord, context: Context) -> None:
    """Only what has a secret in it is touched."""
    said = record.getMessage()
    if (scrubbed := context.scrub(said)) != said:
        record.msg, record.args = scrubbed, None
    if record.exc_info and record.exc_info[0] is not None:
        said = _formatter.formatException(record.exc_info)
        if (scrubbed := context.scrub(said)) != said:
            record.exc_text = scrubbed  # which formatters take as it is


def install_structured_logging(
    target: logging.Logger | None = None, *, as_json: bool = False
) -> None:
    """From now on every record has the fields `holdfast_task_id`, `holdfast_root_id`,
    `holdfast_attempt`, `holdfast_worker_id`, `holdfast_queue` and `holdfast_tenant`, empty outside
    of a task, so that format strings may name them; and none repeats a secret among the arguments
    of the task that it was written in. `as_json`: the handlers of `target` (the root
    logger unless told otherwise) write JSON.
    """
    before = logging.getLogRecordFactory()
    if not getattr(before, "_holdfast", False):

        def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record, context = before(*args, **kwargs), entered()
            record.__dict__.update(fields_of(context))
            if context is not None:
                with suppress(Exception):  # one that cannot be told is its handlers' affair
                    _scrub(record, context)
            return record

        make._holdfast = True  # type: ignore[attr-defined]
        logging.setLogRecordFactory(make)
    if as_json:
        for handler in (target or logging.getLogger()).handlers:
            handler.setFormatter(JsonFormatter())
