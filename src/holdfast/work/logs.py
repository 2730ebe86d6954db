"""What functions log is kept with their attempt, as far as logging lets it through."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.archive import Logs
from holdfast.context import entered
from holdfast.errors import LeaseLost, StoreUnreachable
from holdfast.extras import message_of
from holdfast.records import LogLine
from holdfast.tasks.task import Lease
from holdfast.work.holding import Holding

__all__ = ["TaskLogs"]

logger = logging.getLogger("holdfast.worker")
_MOST_LINES = 1000  # of one attempt; beyond that they are only counted
_LONGEST = 8000  # characters
_OURS = ("holdfast.worker", "holdfast.flow", "holdfast.upkeep", "holdfast.store")
_EVERY = 1.0  # seconds
_AT_ONCE = 8
_formatter = logging.Formatter()


class _Line(NamedTuple):
    number: int
    at: int  # by the clock of leases
    level: str
    logger: str
    text: str


class _Lines:
    """Of one attempt, not written yet."""

    __slots__ = ("count", "lines")

    def __init__(self) -> None:
        self.count = 0
        self.lines: deque[_Line] = deque()


class TaskLogs(logging.Handler):
    """Hears all that is logged in this process, and keeps what attempts of this worker said. It is
    written every second, and before an attempt is settled."""

    def __init__(self, store: Logs, holding: Holding) -> None:
        super().__init__()
        self._store, self._holding = store, holding
        self._guard = threading.Lock()
        self._said: dict[Lease, _Lines] = {}

    def emit(self, record: logging.LogRecord) -> None:
        context = entered()
        if context is None or record.name.startswith(_OURS):
            return
        lease = context.claimed.lease
        if not self._holding.holds(lease):
            return  # another worker's, or lost
        try:
            text = context.scrub(_text(record))[:_LONGEST]
        except Exception:  # as all handlers do: logging must not end what it is about
            self.handleError(record)
            return
        with self._guard:
            said = self._said.setdefault(lease, _Lines())
            said.count += 1
            if said.lines and said.lines[-1].number > _MOST_LINES:
                said.lines.pop()  # only the last of those counts
            now = self._holding.now()
            said.lines.append(_Line(said.count, now, record.levelname, record.name, text))

    async def keep_writing(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if self._said:
                self.forget([one for one in list(self._said) if not self._holding.holds(one)])
                await self.write(list(self._said))

    async def write(self, leases: Iterable[Lease]) -> None:
        """What they said so far."""
        if self._said and (said := [lease for lease in leases if lease in self._said]):
            for start in range(0, len(said), _AT_ONCE):
                some = said[start : start + _AT_ONCE]
                await asyncio.gather(*(self._write(lease) for lease in some))

    def forget(self, leases: Iterable[Lease]) -> None:
        """They have ended."""
        if self._said:
            with self._guard:
                for lease in leases:
                    self._said.pop(lease, None)

    async def _write(self, lease: Lease) -> None:
        with self._guard:
            said = self._said.get(lease)
            taken = list(said.lines) if said else []
        now = self._holding.now()
        lines = [_as_record(line, now) for line in taken]
        # Where lines were left out their numbers have gaps: what is beyond is said for itself.
        kept = [line for line in lines if line.position <= _MOST_LINES]
        try:
            for some in (kept, [line for line in lines if line.position > _MOST_LINES]):
                if some:
                    await self._store.log(lease, some)
        except LeaseLost:
            self.forget([lease])
        except StoreUnreachable:
            pass  # once more, in a second
        except Exception as error:  # what is logged must never hold up what it is about
            logger.warning("task %s: its log cannot be kept: %s", lease.task, error)
            self._drop(lease, taken)
        else:
            self._drop(lease, taken)

    def _drop(self, lease: Lease, written: Sequence[_Line]) -> None:
        with self._guard:
            if written and (said := self._said.get(lease)):
                while said.lines and said.lines[0].number <= written[-1].number:
                    said.lines.popleft()


def _text(record: logging.LogRecord) -> str:
    text = message_of(record)
    if record.exc_info:
        text += "\n" + _formatter.formatException(record.exc_info)
    elif record.exc_text:  # it comes from another process
        text += "\n" + record.exc_text
    return text


def _as_record(line: _Line, now: int) -> LogLine:
    return LogLine(
        position=line.number,
        level=line.level,
        logger=line.logger,
        message=line.text,
        age=max(0.0, (now - line.at) / 1e6),
    )
