"""A dead letter that is a durable function: what succeeded is kept, only what failed runs again."""

import asyncio
from collections import Counter

import pytest

from holdfast import Holdfast, TaskFailed
from tests.flow.acts import ONCE, number_of
from tests.work.bench import Bench


@pytest.mark.parametrize("how", ["child", "gather", "group", "join", "map", "step"])
async def test_only_what_failed_runs_again(bench: Bench, how: str) -> None:
    ran: Counter[str] = Counter()
    mended = asyncio.Event()

    async def effect(name: str) -> str:
        ran[name] += 1
        if name == "bad" and not mended.is_set():
            raise ValueError("broken")
        return name

    @bench.app.durable(name="child", retry_policy=ONCE)
    async def child(name: str) -> str:
        return await effect(name)

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> list[str]:
        found = [await Holdfast.step("first", effect, "first"), await child("second")]
        match how:
            case "child":
                found.append(await child("bad"))
            case "gather":
                found += await asyncio.gather(child("good"), child("bad"))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(child(name)) for name in ("good", "bad")]
                found += [task.result() for task in tasks]
            case "join":
                found += await Holdfast.gather(child("good"), child("bad"))
            case "map":
                found += await child.map(["good", "bad"], at_most=1)
            case "step":
                found.append(await Holdfast.step("bad", effect, "bad"))
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        mended.set()
        assert await bench.app.replay_dead_letter(task)
        found = await task.result(timeout=60)
    assert found == ["first", "second", *(["good"] if ran["good"] else []), "bad"]
    assert (ran["first"], ran["second"], ran["bad"]) == (1, 1, 2)
    assert ran["good"] <= 2  # it may have been cancelled when the other one failed
    if how == "child":
        assert number_of(bench, "child") == 2
