"""What came before the time was over has come in time, however late somebody looks; and timeouts
of no time at all."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, current
from tests.flow.acts import SOON, waits
from tests.work.bench import Bench


@pytest.mark.parametrize("timeout", [0, 1e-6, 0.001])
async def test_a_signal_that_is_there_is_heard_at_once(bench: Bench, timeout: float) -> None:
    @bench.app.durable(name="listen")
    async def listen() -> list[str]:
        heard: list[str] = []
        for _ in range(3):
            try:
                heard.append(await Holdfast.wait_for_signal("go", type=str, timeout=timeout))
            except TimeoutError:
                heard.append("nothing")
        return heard

    task = await bench.app.dispatch(listen)
    await bench.app.send_signal(task, "go", "one")
    await bench.app.send_signal(task, "go", "two")
    async with bench.worker():
        assert await task.result(timeout=30) == ["one", "two", "nothing"]


async def test_what_came_while_nobody_was_there_is_in_time(bench: Bench, no_linger: None) -> None:
    @bench.app.durable(name="child", queue="children")
    async def child() -> str:
        return "in time"

    @bench.app.durable(name="approval")
    async def approval() -> str:
        return await Holdfast.wait_for_signal("approved", type=str, timeout=1.5)

    @bench.app.durable(name="within")
    async def within() -> str:
        async with Holdfast.timeout(1.5):
            return await Holdfast.wait_for_signal("approved", type=str)

    @bench.app.durable(name="parent")
    async def parent() -> str:
        return await asyncio.wait_for(child(), 1.5)

    @bench.app.durable(name="race")
    async def race() -> str:
        sleep = asyncio.create_task(Holdfast.sleep(1.5))
        signal = asyncio.create_task(Holdfast.wait_for_signal("approved", type=str))
        done, _ = await asyncio.wait({sleep, signal}, return_when=asyncio.FIRST_COMPLETED)
        return signal.result() if done == {signal} else "the sleep"

    tasks = [await bench.app.dispatch(f) for f in (approval, within, race, parent)]
    async with bench.worker(queues=["default"]):
        for task in tasks:
            await waits(bench, task)
    for task in tasks[:3]:
        await bench.app.send_signal(task, "approved", "in time")
    async with bench.worker(queues=["children"]):
        await asyncio.sleep(0.3)
    await asyncio.sleep(1.5)
    async with bench.worker():
        assert [await task.result(timeout=30) for task in tasks] == ["in time"] * 4


@pytest.mark.parametrize("what", ["child", "sleep", "signal", "step"])
async def test_what_is_left_of_a_budget_may_be_nothing(
    bench: Bench, no_linger: None, what: str
) -> None:
    """Asks that are given up before they are begun: in a replay too."""
    attempts: list[int] = []

    @bench.app.durable(name="slow")
    async def slow() -> None:
        await Holdfast.sleep("1h")

    @bench.app.durable(name="behind")
    async def behind() -> None: ...

    async def slow_step() -> None:
        await asyncio.sleep(3600)

    async def ask() -> None:
        match what:
            case "child":
                await slow()
            case "sleep":
                await Holdfast.sleep("1h")
            case "signal":
                await Holdfast.wait_for_signal("never")
            case "step":
                await Holdfast.step("slow", slow_step)

    @bench.app.durable(name="budget", retry_policy=SOON)
    async def budget() -> list[int]:
        attempts.append(1)
        end, out = current().now("end") + timedelta(seconds=0.2), []
        for n in range(3):
            left = end - current().now("left")
            try:
                async with Holdfast.timeout(max(left, timedelta(0))):
                    await ask()
            except TimeoutError:
                out.append(n)
        await behind()
        await Holdfast.step("behind", str, "")
        if len(attempts) < 3:
            raise ValueError("once more")
        return out

    async with bench.worker():
        task = await bench.app.dispatch(budget)
        assert await task.result(timeout=30) == [0, 1, 2]
