"""What a function in a process of its own cannot have: it says so, and names the way out."""

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
