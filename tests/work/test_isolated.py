"""A function in a process of its own: what it cannot have it is told, and its death is one try."""

import pytest

from holdfast import TaskFailed
from holdfast.function import Function
from tests.work import isolated
from tests.work.bench import Bench


@pytest.mark.parametrize(
    "function",
    [
        isolated.calls,
        isolated.calls_in_sync_code,
        isolated.maps,
        isolated.steps,
        isolated.sleeps,
        isolated.takes_a_uuid,
        isolated.reads_the_time,
        isolated.takes_a_chance,
    ],
    ids=lambda function: function.name.rpartition(":")[2],
)
async def test_nothing_recorded_is_within_its_reach(
    sqlite_url: str, function: Function[..., object, object]
) -> None:
    async with Bench(sqlite_url) as bench, bench.worker():
        task = await bench.app.dispatch(function)
        with pytest.raises(TaskFailed, match=r"leave that out, or hand the work on with app"):
            await task.result(timeout=60)
        assert len((await bench.app.list_tasks()).tasks) == 1


async def test_a_death_costs_one_try_whatever_errors_are_tried_again(sqlite_url: str) -> None:
    async with Bench(sqlite_url) as bench, bench.worker():
        task = await bench.app.dispatch(isolated.dies)
        with pytest.raises(TaskFailed, match="exited with code 3"):
            await task.result(timeout=60)
        assert await bench.ends(task) == ["retry", "retry", "failed"]
