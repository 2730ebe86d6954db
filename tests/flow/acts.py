"""What the tests of durable functions do, said shortly."""

from typing import Any

from holdfast import RetryPolicy, TaskHandle
from holdfast.tasks.task import TaskStatus
from tests.storm.ledger import peek
from tests.work.bench import Bench, until

__all__ = ["ONCE", "SOON", "journal", "number_of", "open_children", "reason_of", "status", "waits"]

SOON = RetryPolicy(max_attempts=3, initial_delay=0.01, jitter=0.0)
ONCE = RetryPolicy(max_attempts=1)


async def status(bench: Bench, task: TaskHandle[Any]) -> TaskStatus:
    return (await bench.app.state_of(task)).status


async def waits(bench: Bench, task: TaskHandle[Any]) -> None:
    """Until it is put down: in nobody's memory."""

    async def is_down() -> bool:
        return await status(bench, task) is TaskStatus.WAITING

    await until(is_down)


async def reason_of(bench: Bench, task: TaskHandle[Any]) -> str:
    """Why it waits, as the table says."""
    return (await bench.app.state_of(task)).reason or ""


async def journal(bench: Bench, task: TaskHandle[Any]) -> list[str]:
    """The names of what is recorded of it."""
    store = await bench.store()
    return [step.name for step in (await store.journal(task.id)).steps]


def number_of(bench: Bench, type: str) -> int:
    """How many tasks there are of this type."""
    sql = "select count(*) from {s}task t join {s}lane l on l.id = t.lane where l.type = '%s'"
    return int(peek(bench.place, sql % type)[0][0])


def open_children(bench: Bench) -> int:
    sql = """
        select count(*) from {s}task t
        where t.parent is not null and not exists (select 1 from {s}outcome o where o.id = t.id)
    """
    return int(peek(bench.place, sql)[0][0])
