"""The attempts of a task as a picture."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast.cli.timeline import ASCII, lines, parts, spent
from holdfast.desk.shapes import AttemptView, ErrorView, EventView, TaskView

BEGIN = datetime(2030, 1, 1, 10, 0, 0, tzinfo=UTC)
TASK = TaskView(
    id=UUID(int=1), type="t", status="done", queue="q", priority=0, tenant_id="default",
    user_id=None, version="", tags=[], requires=[], try_count=3, max_tries=None,
    idempotency_key=None,
    parent_id=None, cancel_requested=False, reason=None, locked_by=None, lease_timeout=None,
    created_at=BEGIN, run_at=None, started_at=None, finished_at=None, progress=None,
    progress_message=None, last_error=None, last_error_type=None, expires_at=None,
)  # fmt: skip


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def attempt(fence: int, start: float, end: float | None, ended: str | None, **more: Any):
    return AttemptView(
        fence=fence,
        worker_id=f"w{fence}",
        started_at=at(start),
        ended_at=None if end is None else at(end),
        ended=ended,
        by=more.get("by", "holder"),
        error=more.get("error"),
    )


BOOM = ErrorView(type="Boom", message="it broke")
HISTORY = [
    attempt(1, 10, 30, "lost", by="recovery"),
    attempt(2, 40, 50, "retry", error=BOOM),
    attempt(3, 70, 80, "waiting"),
    attempt(4, 90, 100, "done"),
]

DRAWN = """\
wait     ....                                          10s
#1           xxxxxxxx                                  20s  lost by recovery  w1  fence 1
lost                 xxxx                              10s
#2                       ####                          10s  retry  w2  fence 2: Boom: it broke
backoff                      ~~~~~~~~                  20s
#3                                   ####              10s  waiting  w3  fence 3
waiting                                  ----          10s
#4                                           ####      10s  done  w4  fence 4
late settle by the holder of fence 1 refused at 10:00:45"""


def test_each_part_stands_in_its_place():
    task = msgspec.structs.replace(TASK, finished_at=at(100))
    late = EventView(
        seq=9, type="write.refused", task_id=TASK.id, fence=1, worker_id=None, by=None,
        at=at(45), error=None, verb="settle",
    )  # fmt: skip
    assert "\n".join(lines(task, HISTORY, [late], at(500), signs=ASCII)) == DRAWN
    told = spent(parts(task, HISTORY, at(500)))
    assert told == "1m 40s (wait 10s, lost 30s, run 30s, backoff 20s, waiting 10s)"


def test_what_runs_goes_on_until_now():
    task = msgspec.structs.replace(TASK, status="running")
    found = parts(task, [attempt(1, 10, None, None)], at(25))
    assert [(part.what, part.seconds) for part in found] == [("wait", 10), ("run", 15)]


def test_what_was_never_started_has_only_waited():
    (part,) = parts(TASK, [], at(25))
    assert (part.what, part.seconds) == ("wait", 25)
    task = msgspec.structs.replace(TASK, status="cancelled", finished_at=at(5))
    (part,) = parts(task, [], at(25))
    assert part.seconds == 5


def test_a_clock_behind_the_store_breaks_nothing():
    assert lines(TASK, [], [], at(-5), signs=ASCII)
    assert lines(TASK, [attempt(1, 0, 0, "done")], [], at(0), signs=ASCII)
