"""Two versions side by side: a run stays with the one that it began with."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import number_of, status, waits
from tests.work.bench import Bench, until


def _register(app: Holdfast, version: str, gate: asyncio.Event) -> tuple[Any, Any]:
    """The new version does other things, in another order: a run that changed sides would be
    parked, or give another result."""

    async def effect(name: str) -> str:
        return f"{name} of {version}"

    @app.durable(name="child", version=version)
    async def child(i: int) -> str:
        await gate.wait()
        return f"child {i} of {version}"

    @app.durable(name="flow", version=version)
    async def flow() -> list[str]:
        if version == "2":
            found = [await child(2), await Holdfast.step("new", effect, "new")]
        else:
            found = [await Holdfast.step("old", effect, "old"), await child(1)]
        await Holdfast.sleep(0.01)
        return [*found, await child(3)]

    return flow, child


async def test_each_run_stays_with_its_version_while_both_are_served(
    bench: Bench, no_linger: None
) -> None:
    gate = asyncio.Event()
    both = bench.new_app()
    old, _ = _register(bench.app, "1", gate)
    new, _ = _register(both, "2", gate)
    async with bench.worker(), bench.worker(both):
        olds = [await bench.app.dispatch(old) for _ in range(10)]
        news = [await both.dispatch(new) for _ in range(10)]
        for task in olds + news:
            await waits(bench, task)
        gate.set()
        found = [await task.result(timeout=60) for task in olds + news]
    assert found[:10] == [["old of 1", "child 1 of 1", "child 3 of 1"]] * 10
    assert found[10:] == [["child 2 of 2", "new of 2", "child 3 of 2"]] * 10


async def test_a_run_whose_version_nobody_knows_waits_and_is_explained(
    bench: Bench, no_linger: None
) -> None:
    gate = asyncio.Event()
    newer = bench.new_app()
    old, _ = _register(bench.app, "1", gate)
    _register(newer, "2", gate)
    async with bench.worker(drain_timeout=0.0):  # a child that has begun waits for the gate
        task = await bench.app.dispatch(old)
        await waits(bench, task)
        await until(lambda: number_of(bench, "child") == 1)
    async with bench.worker(newer):
        (below,) = (await newer.list_tasks(type="child")).tasks
        (reason,) = await newer.explain(below.id)
        assert "'child@1'" in str(reason)
        assert "child@2" in str(reason)
        gate.set()
        assert await status(bench, task) is TaskStatus.WAITING
        with pytest.raises(TimeoutError):
            await task.result(timeout=0.3)
        async with bench.worker(bench.app):
            assert await task.result(timeout=60) == ["old of 1", "child 1 of 1", "child 3 of 1"]


async def test_a_woken_run_whose_version_nobody_knows_is_explained(
    bench: Bench, no_linger: None
) -> None:
    newer = bench.new_app()

    @bench.app.durable(name="flow", version="1")
    async def old() -> str:
        return str(await Holdfast.wait_for_signal("go"))

    @newer.durable(name="flow", version="2")
    async def new() -> None: ...

    async with bench.worker():
        task = await bench.app.dispatch(old)
        await waits(bench, task)
    async with bench.worker(newer):
        await newer.send_signal(task, "go", "on")

        async def woken() -> bool:
            return await status(bench, task) is TaskStatus.PENDING

        await until(woken)
        (reason,) = await newer.explain(task)
        assert "'flow@1'" in str(reason)
    async with bench.worker(bench.app):
        assert await task.result(timeout=60) == "on"
