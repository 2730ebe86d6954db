"""What attempts say: bounded, and written under the lease like all that a worker writes."""

from collections.abc import Sequence
from uuid import UUID

from holdfast.errors import InvalidInput, LeaseLost
from holdfast.records import LogLine, LogRecord
from holdfast.stores.base import Base, check_limit
from holdfast.tasks.task import Lease, plain

__all__ = ["MOST_BYTES", "MOST_LINES", "Logs"]

MOST_LINES = 1000  # of one attempt
MOST_BYTES = 256 * 1024
_LONGEST = 8000  # characters of one line


class Logs(Base):
    """Keeps `holdfast.archive.Logs`."""

    async def log(self, lease: Lease, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        _check(lines)
        held = await self._value(
            "log",
            id=lease.task,
            grant=lease.grant,
            positions=[line.position for line in lines],
            ages=[float(line.age) for line in lines],
            levels=[plain(line.level, 20) for line in lines],
            loggers=[plain(line.logger, 200) for line in lines],
            messages=[plain(line.message, _LONGEST) for line in lines],
            most=MOST_LINES,
            most_bytes=MOST_BYTES,
        )
        if not held:
            await self._refuse("log", [lease])
            raise LeaseLost("log", lease.task)

    async def logs(
        self, task: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 500
    ) -> list[LogRecord]:
        check_limit(limit)
        fence, position = after
        return [
            LogRecord(
                fence=row[0],
                position=row[1],
                at=self._at(row[2]),
                level=row[3],
                logger=row[4],
                message=row[5],
                left_out=row[6],
            )
            for row in await self._call(
                "logs", id=task, fence=fence, position=position, limit=limit
            )
        ]


def _check(lines: Sequence[LogLine]) -> None:
    first = lines[0].position
    if first < 1 or [line.position for line in lines] != list(range(first, first + len(lines))):
        raise InvalidInput("the lines of an attempt are numbered from 1 on, without gaps")
    if first + len(lines) > 2**31:
        raise InvalidInput("an attempt may write at most 2,147,483,647 lines")
    if not all(0 <= line.age < 366 * 86_400 for line in lines):
        raise InvalidInput("a line was written 0 or more seconds ago, and within this year")
