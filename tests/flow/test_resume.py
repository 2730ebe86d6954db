"""A dead letter that is a durable function: what succeeded is kept, only what failed runs again."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed, TaskHandle
from holdfast.flow import arrivals
from tests.flow.acts import ONCE, number_of
from tests.flow.crashing import BOTH_SIDES, Crashing
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=50, initial_delay=0.0, jitter=0.0)


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


@pytest.mark.timeout(300)
@BOTH_SIDES
async def test_a_crash_at_every_call_of_a_new_life_loses_no_child(
    bench: Bench, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_LINGER", 0.0)
    crashing = Crashing(bench)
    mended: set[int] = set()

    def register(app: Holdfast) -> Any:
        @app.durable(name="child", retry_policy=RetryPolicy(max_attempts=9, retry_for=(OSError,)))
        async def child(run: int) -> int:
            if run not in mended:
                raise ValueError("broken")
            return run

        @app.durable(name="root", retry_policy=PATIENT)
        async def root(run: int) -> int:
            return await child(run)

        return root

    root, runs = crashing.register(register), 0

    async def start() -> TaskHandle[Any]:
        task: TaskHandle[Any] = await crashing.rescuer.dispatch(root, runs)
        async with bench.worker(crashing.rescuer):
            with pytest.raises(TaskFailed):
                await task.result(timeout=60)
        mended.add(runs)
        assert await crashing.rescuer.replay_dead_letter(task)
        return task

    while runs < 50:
        runs += 1
        _, found = await crashing.run(runs, start, after=after)
        assert found == runs
        if crashing.doomed and not crashing.doomed.dead:
            break
    assert runs > 4
