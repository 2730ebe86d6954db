"""Log records of child processes: written over the line, and handled where their worker logs."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from holdfast.context import Context, running
from holdfast.executors import wire
from holdfast.extras import extras_of, message_of
from holdfast.tasks.task import plain

__all__ = ["LineHandler", "handle", "levels", "take_levels"]

_LONGEST = 8_000  # characters of a message, and of a traceback
_MOST_LEVELS = 500
_MOST_RECORDS = 1_000  # a second: more would hold up the worker's event loop
_OWN = "holdfast.executors"
_own_levels: dict[str, int] = {}  # of this process, before it took its worker's


class LineHandler(logging.Handler):
    """In the child. What cannot be sent, such as from a forked copy, goes to stderr."""

    def __init__(
        self,
        send: Callable[[wire.Logged], None],
        *,
        is_sending: Callable[[], bool],
        number: Callable[[], int],
        scrub: Callable[[str], str],
    ) -> None:
        """`is_sending`: whether this very thread is in the middle of it. `scrub` takes secrets
        out, before a text is cut."""
        super().__init__()
        self._scrub = scrub
        self._send, self._is_sending, self._number = send, is_sending, number
        self._pid = os.getpid()
        self._since, self._count, self._left_out = 0.0, 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        # A signal handler may log in the middle of a send: a frame within a frame is nonsense.
        if os.getpid() != self._pid or self._is_sending():
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            if self._has_room(record.created):
                self._send(_as_data(record, self._number(), self._scrub))
        except Exception:  # as all handlers do: logging must not end what it is about
            self.handleError(record)

    def _has_room(self, now: float) -> bool:
        if abs(now - self._since) >= 1.0:  # the clock may be set back
            left_out, self._left_out = self._left_out, 0
            self._since, self._count = now, 0
            if left_out:
                self._send(_about(left_out, now, self._number()))
        self._count += 1
        self._left_out += self._count > _MOST_RECORDS
        return self._count <= _MOST_RECORDS


def _as_data(record: logging.LogRecord, number: int, scrub: Callable[[str], str]) -> wire.Logged:
    trace = record.exc_text
    if record.exc_info and not trace:
        trace = logging.Formatter().formatException(record.exc_info)
    return wire.Logged(
        number=number,
        name=plain(record.name, 200),
        level=int(record.levelno),
        message=plain(scrub(message_of(record)), _LONGEST),
        created=float(record.created),
        path=plain(record.pathname, 1000),
        line=int(record.lineno),
        function=plain(record.funcName or "", 200),
        pid=os.getpid(),
        trace=None if trace is None else plain(scrub(trace), _LONGEST),
        extra=_extra(record, scrub),
    )


def _extra(record: logging.LogRecord, scrub: Callable[[str], str]) -> str:
    """The small ones, where all are too long together."""
    told = extras_of(record, scrub)
    if len(extra := json.dumps(told)) <= _LONGEST:
        return extra
    kept, room = {}, _LONGEST - 200
    for size, name in sorted((len(json.dumps({name: told[name]})), name) for name in told):
        room -= size
        if room < 0:
            break
        kept[name] = told[name]
    left = len(told) - len(kept)
    kept["extra"] = (
        f"left out: {left} of {len(told)} fields; all have {len(extra):,} characters, and "
        f"{_LONGEST:,} are sent at most"
    )
    return json.dumps(kept)


def _about(left_out: int, now: float, number: int) -> wire.Logged:
    message = (
        f"{left_out:,} log records were left out: a process may write {_MOST_RECORDS:,} a second"
    )
    return wire.Logged(
        number=number, name=_OWN, level=logging.WARNING, message=message, created=now,
        path=__file__, line=0, function="", pid=os.getpid(), trace=None,
    )  # fmt: skip


def handle(said: wire.Logged, context: Context | None) -> None:
    """In the worker, by its own loggers and their handlers, as a record of that task."""
    logger = logging.getLogger(said.name)
    if not logger.isEnabledFor(said.level):
        return
    token = running.set(context)
    try:
        record = logging.makeLogRecord(
            {
                "name": said.name,
                "levelno": said.level,
                "levelname": logging.getLevelName(said.level),
                "msg": said.message,
                "created": said.created,
                "msecs": said.created % 1 * 1000,
                "pathname": said.path,
                "filename": os.path.basename(said.path),
                "module": os.path.splitext(os.path.basename(said.path))[0],
                "lineno": said.line,
                "funcName": said.function,
                "process": said.pid,
                "processName": "holdfast-child",
                "exc_text": said.trace,
            }
        )
        with suppress(Exception):  # a filter of somebody's
            for name, value in json.loads(said.extra).items():
                record.__dict__.setdefault(name, value)
            logger.handle(record)
    finally:
        running.reset(token)


def levels() -> dict[str, int]:
    """Which levels are set in this process, by logger; the root's name is empty."""
    found = {"": logging.root.level}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level and len(found) < _MOST_LEVELS:
            found[name] = logger.level
    return found


def take_levels(wanted: Mapping[str, int]) -> None:
    """What the worker would not write need not be sent. Levels that it has no more are again what
    they were here."""
    for name in _own_levels.keys() - wanted.keys():
        logging.getLogger(name or None).setLevel(_own_levels.pop(name))
    for name, level in wanted.items():
        logger = logging.getLogger(name or None)
        _own_levels.setdefault(name, logger.level)
        logger.setLevel(level)
