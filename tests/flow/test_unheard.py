"""Whoever waits is cancelled in the very turn of the event loop in which its answer comes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.flow.pump import Pump
from tests.flow.acts import SOON
from tests.work.bench import Bench

LATER = 0.3  # seconds after which a replay cancels


@pytest.fixture
def firsts(monkeypatch: pytest.MonkeyPatch) -> "list[asyncio.Task[Any]]":
    """The first of these that is put here is cancelled between its answer and its next step."""
    found: list[asyncio.Task[Any]] = []
    answer = Pump._answer

    def answer_and_cancel(self: Pump, ones: Any) -> None:
        answer(self, ones)
        if ones and len(found) == 1 and not found[0].cancelling():
            found[0].cancel()

    monkeypatch.setattr(Pump, "_answer", answer_and_cancel)
    return found


async def cancelled(
    firsts: "list[asyncio.Task[Any]]", work: Coroutine[Any, Any, Any]
) -> "asyncio.Task[Any]":
    task = asyncio.create_task(work)
    firsts.append(task)
    await asyncio.sleep(LATER)
    task.cancel()
    await asyncio.wait({task})
    return task


async def test_a_signal_is_for_the_next_who_waits(
    bench: Bench, firsts: "list[asyncio.Task[Any]]"
) -> None:
    attempts: list[int] = []

    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> list[str]:
        attempts.append(1)
        await cancelled(firsts, Holdfast.wait_for_signal("go", type=str))
        heard = [await Holdfast.wait_for_signal("go", type=str)]
        await Holdfast.step("heard", str, heard[0])
        if len(attempts) == 1:
            raise ValueError("once more")
        return [*heard, await Holdfast.wait_for_signal("go", type=str)]

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await bench.app.send_signal(task, "go", "one")
        await bench.app.send_signal(task, "go", "two")
        assert await task.result(timeout=30) == ["one", "two"]
    assert [first.cancelled() for first in firsts] == [True, True]


@pytest.mark.parametrize("what", ["child", "sleep", "gather", "some", "step"])
async def test_a_replay_takes_the_way_of_the_cancelled(
    bench: Bench, firsts: "list[asyncio.Task[Any]]", what: str
) -> None:
    attempts: list[int] = []
    ran: list[int] = []

    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        ran.append(i)
        return i

    async def run(i: int) -> int:
        ran.append(i)
        return i

    works: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "child": lambda: leaf(1),
        "sleep": lambda: Holdfast.sleep(0.05),
        "gather": lambda: Holdfast.gather(leaf(1), leaf(2)),
        "some": lambda: leaf.map([1, 2, 3], at_most=2),
        "step": lambda: Holdfast.step("run", run, 1),
    }

    @bench.app.durable(name="race", retry_policy=SOON)
    async def race() -> str:
        attempts.append(1)
        first = await cancelled(firsts, works[what]())
        way = "cancelled" if first.cancelled() else "heard"
        await Holdfast.step(way, str, way)
        if len(attempts) == 1:
            raise ValueError("once more")
        return way

    async with bench.worker():
        task = await bench.app.dispatch(race)
        assert await task.result(timeout=30) == "cancelled"
    assert [first.cancelled() for first in firsts] == [True, True]
    assert len(ran) == len(set(ran)), "nothing runs again"
