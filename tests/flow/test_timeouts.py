"""`asyncio.timeout`, `wait_for` and sleeps: times that are over, now and in a replay."""

import asyncio

import pytest

from holdfast import Holdfast
from holdfast.flow import arrivals
from tests.flow.acts import SOON, waits
from tests.work.bench import Bench, until


@pytest.fixture(params=["stays", "is put down"], autouse=True)
def linger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "is put down":
        monkeypatch.setattr(arrivals, "_LINGER", 0.0)


async def test_a_timeout_gives_up_the_child_and_replays_as_a_timeout(bench: Bench) -> None:
    told: list[str] = []

    @bench.app.durable(name="never")
    async def never(how: str) -> None:
        await asyncio.Event().wait()

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        try:
            await asyncio.wait_for(never("wait_for"), 0.2)
        except TimeoutError:
            told.append("wait_for")
        try:
            async with asyncio.timeout(0.2):
                await never("timeout")
        except TimeoutError:
            told.append("timeout")
        try:
            async with Holdfast.timeout("0.2s"):
                await Holdfast.sleep("1d")
        except TimeoutError:
            told.append("sleep")
        if len(told) < 5:
            raise ValueError("once more")
        return "over"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == "over"

        async def cancelled() -> bool:
            found = (await bench.app.list_tasks(type="never")).tasks
            return [one.status for one in found] == ["cancelled"] * 2

        await until(cancelled)
    assert set(told) == {"wait_for", "timeout", "sleep"}


async def test_what_was_asked_within_a_timeout_is_asked_again_before_it_is_over(
    bench: Bench,
) -> None:
    """In a replay the timer is the next thing that comes: but not before its block has begun."""
    told: list[list[str]] = []

    @bench.app.durable(name="never")
    async def never(i: int) -> None:
        await asyncio.Event().wait()

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        seen = ["begun"]
        try:
            async with asyncio.timeout(0.2):
                seen.append("inside")
                await asyncio.sleep(0)
                seen.append("asks")
                await asyncio.gather(never(1), never(2))
        except TimeoutError:
            seen.append("over")
        told.append(seen)
        await Holdfast.step("kept", list, seen)
        if len(told) < 2:
            raise ValueError("once more")
        return "done"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "done"
    assert told[0] == told[-1] == ["begun", "inside", "asks", "over"]


async def test_a_time_that_is_over_ends_what_would_be_over_with_it(bench: Bench) -> None:
    @bench.app.durable(name="same", max_tries=1)
    async def same() -> str:
        try:
            async with asyncio.timeout(0.3):
                await Holdfast.sleep(0.3)
        except TimeoutError:
            return "over"
        return "slept"

    async with bench.worker():
        assert await (await bench.app.dispatch(same)).result(timeout=30) == "over"


async def test_what_fell_due_while_nobody_worked_comes_in_the_order_of_its_time(
    bench: Bench,
) -> None:
    @bench.app.durable(name="many", max_tries=1)
    async def many() -> list[str]:
        seen: list[str] = []

        async def slept(seconds: float) -> None:
            await Holdfast.sleep(seconds)
            seen.append(f"slept {seconds}")

        async def limited(seconds: float) -> None:
            try:
                async with asyncio.timeout(seconds):
                    await Holdfast.sleep(seconds + 0.15)
                seen.append("never")
            except TimeoutError:
                seen.append(f"over {seconds}")

        await asyncio.gather(slept(1.7), limited(1.6), slept(1.5), limited(1.4), slept(1.3))
        return seen

    task = await bench.app.dispatch(many)
    async with bench.worker():
        await waits(bench, task)
    await asyncio.sleep(2)  # all of them fall due meanwhile
    async with bench.worker():
        assert await task.result(timeout=30) == [
            "slept 1.3", "over 1.4", "slept 1.5", "over 1.6", "slept 1.7",
        ]  # fmt: skip


async def test_a_timeout_that_is_not_reached_does_nothing(bench: Bench) -> None:
    @bench.app.durable(name="quick")
    async def quick(i: int) -> int:
        return i

    @bench.app.durable(name="root")
    async def root() -> int:
        async with asyncio.timeout(600):
            return await asyncio.wait_for(quick(1), 600) + await quick(2)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == 3


async def test_a_timeout_around_what_was_begun_before_outlives_being_put_down(
    bench: Bench,
) -> None:
    @bench.app.durable(name="root")
    async def root() -> str:
        waiting = asyncio.create_task(Holdfast.wait_for_signal("never"))
        await Holdfast.step("meanwhile", str, "x")
        try:
            async with asyncio.timeout(1.5):
                await asyncio.shield(waiting)
        except TimeoutError:
            return "timeout"
        return "no"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "timeout"
