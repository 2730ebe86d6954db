"""What workers do, as log records; and records that know which task they were written in."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from holdfast.answers import Recovered
from holdfast.clock import Clock
from holdfast.context import Context, entered
from holdfast.extras import extras_of, message_of
from holdfast.observer import DeadLetter, Ended, Observer, Stuck
from holdfast.redaction import HIDDEN, Redaction
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import Claimed

__all__ = ["JsonFormatter", "LogObserver", "TextFormatter", "install_structured_logging"]

logger = logging.getLogger("holdfast.worker")
_formatter = logging.Formatter()


_NAMED = 3  # so many tasks are named one by one; of more, how many they are
_QUIET = 1_000_000  # microseconds between two lines about claims


class LogObserver(Observer):
    """Claims, renewals, lost leases, failures and recoveries: a line for each batch, and about
    claims at most one a second. What each task went through is in its history."""

    def __init__(self, worker: str, clock: Clock) -> None:
        self._worker, self._clock = worker, clock
        self._untold: list[Claimed] = []
        self._more: Counter[str] = Counter()
        self._told_at: int | None = None
        self._lock = threading.Lock()  # renewals come from a thread of their own

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        if not tasks or not logger.isEnabledFor(logging.INFO):
            return
        with self._lock:
            self._untold += tasks[: _NAMED - len(self._untold)]
            self._more.update(task.lane.type for task in tasks)
        if self._told_at is None or self._clock.boot() - self._told_at >= _QUIET:
            self._tell_claims()

    def rested(self, seconds: float) -> None:
        self._tell_claims()

    def _tell_claims(self) -> None:
        if not self._more:
            return
        with self._lock:
            untold, more, self._untold, self._more = self._untold, self._more, [], Counter()
            self._told_at = self._clock.boot()
        if more.total() > _NAMED:
            types = ", ".join(f"{many} x {type}" for type, many in more.most_common(_NAMED))
            others = ", ..." if len(more) > _NAMED else ""
            logger.info(
                "worker %s claimed %d tasks: %s%s", self._worker, more.total(), types, others
            )
            return
        for task in untold:
            lease, type = task.lease, task.lane.type
            logger.info(
                "worker %s claimed task %s (%s), try %d, fence %d",
                self._worker, lease.task, type, task.tries, lease.fence,
            )  # fmt: skip

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        for end in ended:
            failure = end.settlement.failure
            if failure is None or end.task.lease.task in refused:
                continue
            match end.settlement.verdict:
                case Verdict.FAILED:
                    logger.error(
                        "task %s (%s) failed for good after %d %s: %s: %s",
                        end.task.lease.task,
                        end.task.lane.type,
                        end.task.tries,
                        "try" if end.task.tries == 1 else "tries",
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
        self._tell_claims()
        if kept:
            s = "s" if len(kept) > 1 else ""
            logger.info("worker %s renewed %d lease%s", self._worker, len(kept), s)
        if lost:
            logger.warning(
                "worker %s lost the leases of %s: recovered, cancelled or withdrawn meanwhile",
                self._worker,
                _names(lost),
            )

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
        if len(tasks) > _NAMED:
            statuses = Counter(str(found.status) for found in tasks)
            logger.warning(
                "recovered %s: their workers stopped renewing up to %.1f s ago; now %s",
                _names([found.lease.task for found in tasks]),
                max(found.late for found in tasks),
                ", ".join(f"{many} are {status}" for status, many in statuses.items()),
            )
            return
        for found in tasks:
            logger.warning(
                "recovered task %s: its worker stopped renewing %.1f s ago; it is %s now",
                found.lease.task,
                found.late,
                found.status,
            )


def _names(tasks: Collection[UUID]) -> str:
    some = ", ".join(str(task) for task in sorted(tasks)[:_NAMED])
    if len(tasks) > _NAMED:
        return f"{len(tasks)} tasks ({some}, ...)"
    return f"task {some}" if len(tasks) == 1 else f"tasks {some}"


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


_TAKEN = frozenset(("time", "level", "logger", "message", "exception"))
_FIELDS = (
    "holdfast_task_id", "holdfast_root_id", "holdfast_attempt", "holdfast_worker_id",
    "holdfast_queue", "holdfast_tenant",
)  # fmt: skip


class TextFormatter(logging.Formatter):
    """A line for people, which names the task that it was written in."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line, task = super().formatMessage(record), getattr(record, "holdfast_task_id", "")
        return f"{line} [task {task}]" if task and task not in line else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the task where there is one, and with what a record was given as
    `extra`: where it has a name of ours, as `extra_…`. `redact`: names of fields to hide besides
    those that are always hidden."""

    def __init__(self, redact: Iterable[str] = ()) -> None:
        super().__init__()
        self._redaction = Redaction(redact)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, f"%Y-%m-%dT%H:%M:%S.{int(record.msecs):03d}%z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: v for name in _FIELDS if (v := getattr(record, name, "")) != ""}
        extras = extras_of(record, _scrubber(record), self._redaction)
        for name, value in extras.items():
            if name not in _FIELDS:
                line[_free(name, extras) if name in _TAKEN else name] = value
        if record.exc_text:  # it was scrubbed, or comes from another process
            line["exception"] = record.exc_text
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _free(name: str, others: Collection[str]) -> str:
    """Another name for what has one of ours."""
    name = f"extra_{name}"
    while name in others:
        name = f"extra_{name}"
    return name


class _Scrub:
    """Hides the secrets among the arguments of a record's task, also where another thread writes
    the record. They are not handed to another process: there all is hidden."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, text: str) -> str:
        return self._context.scrub(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (HIDDEN,)  # a log server that reads it may know nothing of us


def _scrubber(record: logging.LogRecord) -> Callable[[str], str]:
    known: Any = getattr(record, "_holdfast_scrub", None)
    if isinstance(known, str):  # from another process
        return lambda _: HIDDEN
    if known is None and (context := entered()) is not None:
        return context.scrub
    return known or str


def _scrub(record: logging.LogRecord, context: Context) -> None:
    """Only what has a secret in it is touched."""
    try:
        said = record.getMessage()
    except Exception:  # its handlers would write its arguments to stderr as they are
        if context.secrets is None or not context.secrets():
            raise
        said = record.msg = message_of(record)
        record.args = None
    if (scrubbed := context.scrub(said)) != said:
        record.msg, record.args = scrubbed, None
    if record.exc_info and record.exc_info[0] is not None:
        said = _formatter.formatException(record.exc_info)
        if (scrubbed := context.scrub(said)) != said:
            record.exc_text = scrubbed  # which formatters take as it is


def install_structured_logging(
    target: logging.Logger | None = None, *, as_json: bool = False, redact: Iterable[str] = ()
) -> None:
    """From now on every record has the fields `holdfast_task_id`, `holdfast_root_id`,
    `holdfast_attempt`, `holdfast_worker_id`, `holdfast_queue` and `holdfast_tenant`, empty outside
    of a task, so that format strings may name them; and none repeats a secret among the arguments
    of the task that it was written in. `as_json`: the handlers of `target` (the root
    logger unless told otherwise) write JSON, also what a record was given as `extra`, where fields
    such as `password`, and those that `redact` names, are hidden.
    """
    before = logging.getLogRecordFactory()
    if not getattr(before, "_holdfast", False):

        def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record, context = before(*args, **kwargs), entered()
            record.__dict__.update(fields_of(context))
            if context is not None:
                if context.secrets is not None:  # what comes as `extra` is put there only later
                    record._holdfast_scrub = _Scrub(context)
                with suppress(Exception):  # one that cannot be told is its handlers' affair
                    _scrub(record, context)
            return record

        make._holdfast = True  # type: ignore[attr-defined]
        logging.setLogRecordFactory(make)
    if as_json:
        for handler in (target or logging.getLogger()).handlers:
            handler.setFormatter(JsonFormatter(redact))
