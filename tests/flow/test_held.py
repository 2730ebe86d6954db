"""Whatever a function awaits of its own, its branches do things again in the order in which they
did them: none goes ahead of what is recorded, although its sleep or request takes another time."""

import asyncio
import time
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.flow import arrivals, business
from tests.flow.acts import SOON
from tests.flow.slowly import slow_commits
from tests.work.bench import Bench


@pytest.fixture(params=[pytest.param("stays", marks=pytest.mark.long), "is put down"], autouse=True)
def linger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "is put down":
        monkeypatch.setattr(arrivals, "_LINGER", 0.0)


def child(bench: Bench) -> Any:
    @bench.app.durable(name="child")
    async def child(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    return child


async def test_a_sleep_that_begins_after_a_recorded_wait_does_not_overtake(bench: Bench) -> None:
    """In a replay the wait is over at once."""
    told: list[list[str]] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        seen: list[str] = []

        async def first_waits() -> None:
            await Holdfast.sleep(1.0)
            await asyncio.sleep(0.5)
            seen.append("waited")
            await Holdfast.step("waited", list, seen)

        async def only_sleeps() -> None:
            await asyncio.sleep(1.2)
            seen.append("slept")
            await Holdfast.step("slept", list, seen)

        await asyncio.gather(first_waits(), only_sleeps())
        told.append(seen)
        if len(told) == 1:
            raise ValueError("once more")
        return seen

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == ["slept", "waited"]
    assert told == [["slept", "waited"]] * 2


async def test_a_branch_that_an_answer_made_wins_its_race_again(bench: Bench) -> None:
    told: list[str] = []
    wait = child(bench)

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        slow = asyncio.create_task(wait(0.8))
        await wait(0.1)
        sleep = asyncio.create_task(asyncio.sleep(0.2))
        await asyncio.wait({slow, sleep}, return_when=asyncio.FIRST_COMPLETED)
        told.append("child" if slow.done() else "sleep")
        await slow
        await Holdfast.step("kept", str, told[-1])
        if len(told) == 1:
            raise ValueError("once more")
        return told[-1]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "sleep"
    assert told == ["sleep"] * 2


@pytest.mark.parametrize("end", ["returns", "begins anew", "asks"])
async def test_a_request_that_is_quicker_than_last_time_is_waited_with(
    bench: Bench, end: str
) -> None:
    """Else the reporter beside it would be ended before it comes to what is recorded of it."""
    attempts: list[int] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root(again: bool = False) -> str:
        if again:
            return "ok"
        attempts.append(1)

        async def report() -> None:
            for number in range(100):
                await asyncio.sleep(0.2)
                await Holdfast.step(f"report {number}", int, number)

        reporter = asyncio.create_task(report())
        try:
            await Holdfast.step("begin", str, "x")
            await asyncio.sleep(0.7 if len(attempts) == 1 else 0.3)  # the request
        finally:
            reporter.cancel()
        if len(attempts) == 1:
            raise ValueError("once more")
        if end == "begins anew":
            await Holdfast.continue_as_new(again=True)
        if end == "asks":
            await Holdfast.step("more", str, "x")
        return "ok"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "ok"


async def test_what_happens_once_in_a_process_changes_no_order_behind_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a pool that connects, under a timeout of its own, when it is used first."""
    monkeypatch.setattr(business, "_LONG", 2.0)
    told: list[list[str]] = []
    pool: list[str] = []
    wait = child(bench)

    async def connect() -> None:
        if not pool:
            async with asyncio.timeout(30):
                await asyncio.sleep(0.2)
            pool.append("connected")

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        seen: list[str] = []
        slow = asyncio.create_task(wait(1.2))

        async def late() -> None:
            for number in range(2):
                await asyncio.sleep(0.3)
                await Holdfast.step(f"late {number}", int, number)
                seen.append("late")

        async def early() -> None:
            await slow
            seen.append("child")

        await connect()
        await asyncio.gather(late(), early())
        told.append(seen)
        await Holdfast.step("kept", list, seen)
        if len(told) == 1:
            raise ValueError("once more")
        return seen

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=40) == ["late", "late", "child"]
    assert told == [["late", "late", "child"]] * 2


async def test_a_timeout_that_is_left_while_its_end_is_written_is_not_over(bench: Bench) -> None:
    await slow_commits(bench, of="came", by=0.3)
    told: list[str] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        await Holdfast.step("a", str, "x")
        try:
            async with asyncio.timeout(20), asyncio.timeout(0.3):
                await asyncio.sleep(0.4)
            told.append("slept")
        except TimeoutError:
            told.append("over")
        await Holdfast.step("kept", str, told[-1])
        if len(told) == 1:
            raise ValueError("once more")
        return told[-1]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await task.result(timeout=30)
    assert told == [told[0]] * 2


@pytest.mark.parametrize("beside", ["sleep", "thread", "lock", "spin"])
async def test_what_was_asked_after_a_plain_await_comes_before_what_came_later(
    bench: Bench, beside: str
) -> None:
    """The step was recorded before the child had ended: in a replay too it wins."""
    told: list[list[str]] = []

    async def plainly() -> None:
        match beside:
            case "sleep":
                await asyncio.sleep(0.2)
            case "thread":
                await asyncio.to_thread(time.sleep, 0.2)
            case "spin":
                end = time.monotonic() + 0.2
                while time.monotonic() < end:
                    await asyncio.sleep(0)
            case _:
                event = asyncio.Event()
                asyncio.get_running_loop().call_later(0.2, event.set)
                await event.wait()

    @bench.app.durable(name="child")
    async def child() -> str:
        await asyncio.sleep(0.6)
        return "child"

    async def late() -> str:
        await plainly()
        return str(await Holdfast.step("step", str, "step"))

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        seen: list[str] = []

        async def note(what: Any) -> None:
            seen.append(await what)

        await asyncio.gather(note(child()), note(late()))
        await Holdfast.step("kept", list, seen)
        told.append(seen)
        if len(told) < 2:
            raise ValueError("once more")
        return seen

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == ["step", "child"]
    assert told[-1] == ["step", "child"]


async def test_a_plain_sleep_that_won_a_race_wins_it_again(bench: Bench) -> None:
    """Nothing is asked between its end and that of the child: it stands in the journal anyway."""
    told: list[str] = []

    @bench.app.durable(name="child")
    async def child() -> str:
        await asyncio.sleep(0.5)
        return "child"

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        task = asyncio.create_task(child())
        late = asyncio.create_task(asyncio.sleep(0.1))
        await asyncio.wait({task, late}, return_when=asyncio.FIRST_COMPLETED)
        winner = "child" if task.done() else "sleep"
        told.append(winner)
        await task
        await Holdfast.step("kept", str, winner)
        if len(told) < 3:
            raise ValueError("once more")
        return winner

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "sleep"
    assert set(told) == {"sleep"}


@pytest.mark.parametrize("what", ["step", "child"])
async def test_what_was_given_up_after_a_plain_sleep_is_given_up_again(
    bench: Bench, what: str
) -> None:
    """The step cannot be stopped, ends later, and is recorded: it reaches nobody in a replay."""
    told: list[str] = []

    @bench.app.durable(name="child")
    async def child() -> str:
        await Holdfast.sleep(0.5)
        return "child"

    def slow() -> str:
        time.sleep(0.5)
        return "step"

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        work = child() if what == "child" else Holdfast.step("slow", slow)
        task = asyncio.create_task(work)
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.wait({task})
        found = "given up" if task.cancelled() else "came"
        await Holdfast.sleep(0.6)
        await Holdfast.step("kept", str, found)
        told.append(found)
        if len(told) < 3:
            raise ValueError("once more")
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "given up"
    assert set(told) == {"given up"}


@pytest.mark.parametrize("way", ["sleep", "branch", "thread"])
async def test_who_was_first_beside_an_await_of_the_functions_own_is_first_again(
    bench: Bench, way: str
) -> None:
    """Nothing is asked, and no branch ends, or none that was there from the beginning."""
    told: list[str] = []

    @bench.app.durable(name="child")
    async def child() -> str:
        await asyncio.sleep(0.6)
        return "child"

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        task = asyncio.create_task(child())
        if way == "thread":
            late: Any = asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.1)
            await asyncio.wait({task, late}, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0.1)
        if way == "branch":
            other = asyncio.create_task(asyncio.sleep(0.1))
            await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
        winner = "child" if task.done() else "other"
        told.append(winner)
        await task
        await Holdfast.step("kept", str, winner)
        if len(told) < 3:
            raise ValueError("once more")
        return winner

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == "other"
    assert set(told) == {"other"}


@pytest.mark.parametrize("ends", ["well", "with an error"])
async def test_the_first_ask_of_all_waits_for_its_turn_too(bench: Bench, ends: str) -> None:
    """However the request ends, and although the function has asked for nothing before."""
    told: list[list[str]] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        seen: list[str] = []
        told.append(seen)

        def call() -> None:
            time.sleep(0.8 if len(told) == 1 else 0.05)
            if ends == "with an error":
                raise ValueError("no answer")

        async def request() -> None:
            try:
                await asyncio.to_thread(call)
            except ValueError:
                seen.append("failed")
            await Holdfast.step("requested", list, seen)

        async def sleep() -> None:
            await asyncio.sleep(0.4)
            seen.append("slept")
            await Holdfast.step("slept", list, seen)

        await asyncio.gather(request(), sleep())
        if len(told) == 1:
            raise ValueError("once more")
        return seen

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await task.result(timeout=30)
    assert told[0] == told[1]
