"""`expires` bounds the whole of a durable function: in memory, asleep, and in its children."""

import asyncio

import pytest

from holdfast import Holdfast, TaskFailed
from tests.flow.acts import waits
from tests.work.bench import Bench, until

SOON = 20.0  # seconds: long before the net of a minute


async def test_a_function_that_takes_too_many_steps_is_stopped(bench: Bench) -> None:
    steps: list[int] = []

    async def slow(n: int) -> int:
        steps.append(n)
        await asyncio.sleep(0.1)
        return n

    @bench.app.durable(expires="0.5s")
    async def many() -> None:
        for n in range(1000):
            await Holdfast.step("slow", slow, n)

    async with bench.worker():
        task = await bench.app.dispatch(many)
        with pytest.raises(TaskFailed, match="Expired"):
            await task.result(timeout=SOON)
    assert 0 < len(steps) < 20
    assert len(set(steps)) == len(steps)
    assert (await task.state()).try_count == 1


@pytest.mark.parametrize("nap", [0.2, "1h"])
async def test_a_function_that_sleeps_past_its_time_ends(bench: Bench, nap: float | str) -> None:
    @bench.app.durable(expires="1s")
    async def sleeper() -> None:
        for _ in range(100):
            await Holdfast.sleep(nap)

    async with bench.worker():
        task = await bench.app.dispatch(sleeper)
        with pytest.raises(TaskFailed, match="Expired"):
            await task.result(timeout=SOON)


@pytest.mark.parametrize("is_down", [False, True], ids=["in memory", "put down"])
async def test_the_children_of_an_expired_function_are_cancelled(
    bench: Bench, no_linger: None, is_down: bool
) -> None:
    inside = asyncio.Event()

    @bench.app.durable
    async def endless() -> None:
        inside.set()
        await asyncio.Event().wait()

    @bench.app.durable(expires="1s")
    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(endless())
            if not is_down:
                await asyncio.sleep(600)

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        await asyncio.wait_for(inside.wait(), SOON)
        with pytest.raises(TaskFailed, match="Expired"):
            await task.result(timeout=SOON)

        async def cancelled() -> bool:
            tasks = (await bench.app.list_tasks(type=endless.name)).tasks
            return [one.status for one in tasks] == ["cancelled"]

        await until(cancelled, within=SOON)


async def test_a_child_that_nobody_serves_wakes_its_parent_when_it_expires(
    bench: Bench, no_linger: None
) -> None:
    @bench.app.durable(queue="nobody", expires="1s")
    async def unserved() -> None: ...

    @bench.app.durable
    async def parent() -> str:
        try:
            await unserved()
        except TaskFailed as failed:
            return failed.type
        return "done"

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent)
        await waits(bench, task)
        assert await task.result(timeout=SOON) == "Expired"


async def test_a_child_that_its_parents_worker_took_at_once_is_stopped_too(bench: Bench) -> None:
    @bench.app.durable(expires="1s")
    async def child(n: int) -> None:
        if n == 9:
            await asyncio.Event().wait()

    @bench.app.durable
    async def parent() -> str:
        try:
            for n in range(10):  # once its worker knows of such children and is idle, it takes them
                await child(n)
        except TaskFailed as failed:
            return failed.type
        return "done"

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=SOON) == "Expired"
