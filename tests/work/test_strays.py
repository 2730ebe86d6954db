"""A row in `ready` that leads to no task (a fault that no verb makes) does not end a worker."""

from uuid import UUID

import pytest

from holdfast.ids import new_id
from tests.storm.ledger import peek
from tests.work.bench import Bench, until


def stray(bench: Bench, id: UUID, seq: int) -> None:
    """A row of no task, in the lane of the only type there is."""
    rows = peek(bench.place, "select id from {s}lane")
    mark, table = ("?", "ready") if bench.is_sqlite else ("%s", "holdfast.ready")
    bench._write(
        f"insert into {table} (seq, id, lane, fence, np, tries, alone, child) "
        f"values ({mark}, {mark}, {mark}, 0, 0, 0, {mark}, {mark})",
        seq,
        id.bytes if bench.is_sqlite else id,
        rows[0][0],
        False,
        False,
    )


def is_held(bench: Bench, id: UUID) -> bool:
    sql = "select id from {s}lease"
    return any(UUID(str(id)) == _uuid(found) for (found,) in peek(bench.place, sql))


def _uuid(found: object) -> UUID:
    return UUID(bytes=found) if isinstance(found, bytes) else UUID(str(found))


@pytest.mark.parametrize("slots", [1, 10])
async def test_a_worker_passes_by_what_is_no_task(bench: Bench, slots: int) -> None:
    @bench.app.durable
    async def work(number: int) -> int:
        return number

    first = await bench.app.dispatch(work, 0)
    async with bench.worker(max_concurrency=slots) as lifecycle:
        assert await first.result(timeout=60) == 0
        for number in range(1, 3):
            stray(bench, lost := new_id(), -number)
            await until(lambda lost=lost: is_held(bench, lost))
            bench.lapse(lost)  # as it comes when nobody renews it: recovery meets it as well
            task = await bench.app.dispatch(work, number)
            assert await task.result(timeout=60) == number
        assert lifecycle.state == "ready"
