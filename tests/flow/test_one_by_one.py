"""What came while nobody was there reaches the function as if it had been: one after the other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed, TaskHandle
from tests.flow.acts import open_children, waits
from tests.work.bench import Bench, until

SLEEPS = (0.9, 0.3, 0.6)
LATER = 2.0  # seconds in which a function is surely put down


def _register(app: Holdfast) -> list[Any]:
    @app.durable(name="child", queue="children")
    async def child(seconds: float) -> float:
        await Holdfast.sleep(seconds)
        return seconds

    @app.durable(name="broken", queue="children", max_tries=1)
    async def broken(seconds: float) -> None:
        await Holdfast.sleep(seconds)
        raise ValueError(str(seconds))

    async def first_of(asks: list[Any]) -> list[Any]:
        """What came together, each time."""
        tasks, rounds = [asyncio.ensure_future(ask) for ask in asks], []
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            rounds.append(sorted(tasks.index(task) for task in done))
        return await Holdfast.step(f"{len(rounds)} rounds", list, rounds)

    @app.durable(name="sleeps")
    async def sleeps() -> list[Any]:
        return await first_of([Holdfast.sleep(LATER + seconds) for seconds in SLEEPS])

    @app.durable(name="children")
    async def children() -> list[Any]:
        return await first_of([child(seconds) for seconds in SLEEPS])

    @app.durable(name="given_up")
    async def given_up() -> list[Any]:
        tasks = [asyncio.ensure_future(child(seconds)) for seconds in SLEEPS]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [[await task for task in done], await Holdfast.step("left", len, pending)]

    @app.durable(name="first_failure")
    async def first_failure() -> list[Any]:
        found: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                for seconds in SLEEPS:
                    group.create_task(broken(seconds))
        except* TaskFailed as failed:
            found = [str(error) for error in failed.exceptions]
        return [len(found), await Holdfast.step("found", lambda: found[0].partition(":")[2])]

    @app.durable(name="equal")
    async def equal() -> list[Any]:
        return await first_of([Holdfast.sleep(LATER) for _ in range(3)])

    return [sleeps, children, given_up, first_failure, equal]


EXPECTED = [[[1], [2], [0]]] * 2 + [[[0.3], 2], [1, " 0.3"], [[0, 1, 2]]]


@pytest.mark.parametrize("again", [False, True], ids=["at once", "put down between"])
async def test_what_came_while_nobody_was_there(bench: Bench, no_linger: None, again: bool) -> None:
    functions = _register(bench.app)
    tasks: list[TaskHandle[Any]] = [await bench.app.dispatch(function) for function in functions]
    async with bench.worker(queues=["default"]):
        for task in tasks:
            await waits(bench, task)
    async with bench.worker(queues=["children"]):
        await until(lambda: not open_children(bench))
        await asyncio.sleep(LATER)
    if again:  # each worker hands its functions back where they stand
        for _ in range(3):
            async with bench.worker(drain_timeout=0.0):
                await asyncio.sleep(0.05)
    async with bench.worker():
        assert [await task.result(timeout=30) for task in tasks] == EXPECTED


async def zero() -> None:
    await asyncio.sleep(0)


async def timeout() -> None:
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


async def cancel() -> None:
    other = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    other.cancel()


async def give_up() -> None:
    other = asyncio.ensure_future(Holdfast.sleep(60))
    await asyncio.sleep(0)
    other.cancel()


@pytest.mark.parametrize("own", [zero, timeout, cancel, give_up])
async def test_what_a_branch_does_by_itself_between_two_of_them_is_done_again(
    bench: Bench, no_linger: None, own: Callable[[], Awaitable[None]]
) -> None:
    seen: list[int] = []

    @bench.app.durable(name="two", max_tries=1)
    async def two() -> Any:
        flag: list[int] = []

        async def first() -> None:
            await Holdfast.sleep(LATER)
            await own()
            flag.append(1)

        async def second() -> Any:
            await Holdfast.sleep(LATER + 0.2)
            seen.append(len(flag))
            return await Holdfast.step(f"saw {len(flag)}", int, len(flag))

        found = await asyncio.gather(first(), second())
        await Holdfast.sleep(LATER)
        return [await Holdfast.step("end", str, found), len(flag)]

    task = await bench.app.dispatch(two)
    async with bench.worker():
        await waits(bench, task)
    await asyncio.sleep(LATER + 0.3)
    async with bench.worker():
        assert await task.result(timeout=30) == [f"[None, {seen[0]}]", 1]
    assert len(seen) > 1
    assert set(seen) == {seen[0]}


async def test_of_very_many_the_last_come_together(bench: Bench, no_linger: None) -> None:
    """Each moment takes a turn of every branch."""

    @bench.app.durable(name="many")
    async def many() -> int:
        await asyncio.gather(*(Holdfast.sleep(LATER + n / 500) for n in range(250)))
        return await Holdfast.step("end", int, 1)

    task = await bench.app.dispatch(many)
    async with bench.worker():
        await waits(bench, task)
    await asyncio.sleep(LATER + 0.6)
    async with bench.worker():
        assert await task.result(timeout=30) == 1
    came = [step.kind for step in (await (await bench.store()).journal(task.id)).steps]
    assert came.count("came") == 101
