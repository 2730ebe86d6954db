"""Whoever waits is cancelled in the very turn of the event loop in which its answer comes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.flow.pump import Pump
from tests.flow.acts import ONCE, SOON
from tests.work.bench import Bench, until

LATER = 0.3  # seconds after which an attempt cancels by itself
Task = asyncio.Task[Any]


class Turn:
    """Cancels the last of `tasks` between an answer and the next step of whoever awaits it, in this
    attempt; or so many turns later."""

    def __init__(self) -> None:
        self.attempts = 0
        self.fatal = 1
        self.late = 0
        self.tasks: list[Task] = []

    def answered(self) -> None:
        if self.attempts == self.fatal and self.tasks and not self.tasks[-1].cancelling():
            self._cancel(self.tasks[-1], self.late)

    def _cancel(self, task: Task, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._cancel, task, turns - 1)
        else:
            task.cancel()

    def start(self, work: Coroutine[Any, Any, Any]) -> Task:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    async def cancelled(self, work: Coroutine[Any, Any, Any]) -> Task:
        task = self.start(work)
        await asyncio.sleep(LATER)
        task.cancel()
        await asyncio.wait({task})
        return task


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Turn:
    found, answer = Turn(), Pump._answer

    def answer_and_cancel(self: Pump, ones: Any) -> None:
        answer(self, ones)
        if ones:
            found.answered()

    monkeypatch.setattr(Pump, "_answer", answer_and_cancel)
    return found


async def test_a_signal_is_for_the_next_who_waits(bench: Bench, turn: Turn) -> None:
    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> list[str]:
        turn.attempts += 1
        await turn.cancelled(Holdfast.wait_for_signal("go", type=str))
        heard = [await Holdfast.wait_for_signal("go", type=str)]
        await Holdfast.step("heard", str, heard[0])
        if turn.attempts == 1:
            raise ValueError("once more")
        return [*heard, await Holdfast.wait_for_signal("go", type=str)]

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await bench.app.send_signal(task, "go", "one")
        await bench.app.send_signal(task, "go", "two")
        assert await task.result(timeout=30) == ["one", "two"]
    assert [first.cancelled() for first in turn.tasks] == [True, True]


async def test_a_signal_is_for_who_waits_beside(bench: Bench, turn: Turn) -> None:
    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> list[Any]:
        turn.attempts += 1
        first = turn.start(Holdfast.wait_for_signal("go", type=str))
        second = asyncio.create_task(Holdfast.wait_for_signal("go", type=str))
        await asyncio.sleep(LATER)
        first.cancel()
        heard = await second
        await Holdfast.step("heard", str, heard)
        if turn.attempts == 1:
            raise ValueError("once more")
        return [first.cancelled(), heard, await Holdfast.wait_for_signal("go", type=str)]

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await bench.app.send_signal(task, "go", "one")
        await bench.app.send_signal(task, "go", "two")
        assert await task.result(timeout=30) == [True, "one", "two"]


async def test_a_signal_that_was_used_and_is_missed_in_a_replay_is_not_lost(
    bench: Bench, turn: Turn
) -> None:
    """It has left the queue with the first step: only the journal has it."""
    turn.fatal = 2

    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> str:
        turn.attempts += 1
        first = turn.start(Holdfast.wait_for_signal("go", type=str))
        await asyncio.sleep(LATER)
        first.cancel()
        await Holdfast.step("one", str, "")
        if turn.attempts == 1:
            raise ValueError("once more")
        assert first.cancelled()
        await Holdfast.step("two", str, "")
        if turn.attempts == 2:
            raise ValueError("once more")
        return await Holdfast.wait_for_signal("go", type=str, timeout=5)

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await bench.app.send_signal(task, "go", "heard")
        assert await task.result(timeout=30) == "heard"


async def test_a_signal_whose_giving_up_is_void_is_heard_once(bench: Bench, turn: Turn) -> None:
    """An older failure cuts the history, the giving up is void, another signal comes: and all the
    same it has not left the queue before somebody hears of it."""
    again = asyncio.Event()
    heard: list[str] = []

    async def fails_once() -> None:
        if turn.attempts == 1:
            raise ValueError("once")

    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen(run: int = 1) -> list[str]:
        if run == 2:
            try:
                return [*heard, await Holdfast.wait_for_signal("go", type=str, timeout=1)]
            except TimeoutError:
                return heard
        turn.attempts += 1
        if turn.attempts == 2:
            await again.wait()
        other = asyncio.create_task(Holdfast.wait_for_signal("other", type=str))
        go = asyncio.create_task(Holdfast.wait_for_signal("go", type=str))
        step = asyncio.create_task(Holdfast.step("fails", fails_once))
        await asyncio.wait({step})
        if turn.attempts == 1:
            turn.tasks.append(go)
            await asyncio.wait({go})
            step.result()
        await other
        if turn.attempts == 2:
            raise ValueError("once more")
        heard.append(await go)
        await Holdfast.continue_as_new(2)
        raise AssertionError("unreachable")

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await until(lambda: turn.tasks)
        await bench.app.send_signal(task, "go", "one")
        await until(lambda: turn.attempts == 2)
        await bench.app.send_signal(task, "other", "two")
        again.set()
        assert await task.result(timeout=30) == ["one"]


@pytest.mark.parametrize("fatal", [1, 2], ids=["live", "in a replay"])
@pytest.mark.parametrize("what", ["child", "sleep", "gather", "some", "step"])
async def test_a_replay_takes_the_way_of_the_cancelled(
    bench: Bench, turn: Turn, what: str, fatal: int
) -> None:
    ran: list[int] = []
    turn.fatal = fatal

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
        "some": lambda: leaf.map([1, 2], at_most=1),
        "step": lambda: Holdfast.step("run", run, 1),
    }

    @bench.app.durable(name="race", retry_policy=SOON)
    async def race() -> str:
        turn.attempts += 1
        if turn.attempts < fatal:
            turn.start(works[what]())
            await asyncio.sleep(LATER)
            raise ValueError("nobody has asked how it went")
        first = await turn.cancelled(works[what]())
        way = "cancelled" if first.cancelled() else "heard"
        await Holdfast.step(way, str, way)
        if turn.attempts == fatal:
            raise ValueError("once more")
        return way

    async with bench.worker():
        task = await bench.app.dispatch(race)
        assert await task.result(timeout=30) == "cancelled"
    assert len(ran) == len(set(ran)), "nothing runs again"


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("at_most", [None, 2])
async def test_a_broken_join_stops_its_other_children(
    bench: Bench, turn: Turn, at_most: int | None, late: int
) -> None:
    ran: list[str] = []
    turn.late = late

    @bench.app.durable(name="fails", retry_policy=ONCE)
    async def fails() -> None:
        await asyncio.sleep(0.1)
        raise ValueError("it fails")

    @bench.app.durable(name="lasts", retry_policy=ONCE)
    async def lasts() -> None:
        ran.append("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ran.append("stopped")
            raise

    @bench.app.durable(name="race", retry_policy=SOON)
    async def race() -> str:
        turn.attempts += 1
        first = await turn.cancelled(Holdfast.gather(fails(), lasts(), lasts(), at_most=at_most))
        way = "cancelled" if first.cancelled() else "heard"
        await Holdfast.step(way, str, way)
        if turn.attempts == 1:
            raise ValueError("once more")
        return way

    async with bench.worker():
        task = await bench.app.dispatch(race)
        assert await task.result(timeout=30) == "cancelled"
        await until(lambda: ran.count("stopped") == ran.count("began"))
    assert ran.count("began") == (at_most or 3) - 1
