"""Awaits of the function's own beside what it asks for: nobody records them, and they last."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy
from holdfast.errors import StepFailed
from holdfast.flow import arrivals, business, standing
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import SOON, journal, reason_of, status, waits
from tests.work.bench import Bench, until

PATIENT = RetryPolicy(max_attempts=6, initial_delay=0.01, jitter=0.0)


@pytest.fixture(params=[pytest.param("stays", marks=pytest.mark.long), "is put down"], autouse=True)
def linger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "is put down":
        monkeypatch.setattr(arrivals, "_LINGER", 0.0)


async def test_a_plain_sleep_stays_what_it_is(bench: Bench) -> None:
    """What is recorded behind it is not missed too early when the function is replayed."""
    attempts: list[int] = []

    async def slowly() -> str:
        await asyncio.sleep(0.3)
        return str(await Holdfast.step("after", str, "x"))

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[Any]:
        attempts.append(1)
        found = await asyncio.gather(slowly(), Holdfast.step("at once", str, "y"))
        if len(attempts) == 1:
            raise ValueError("once more")

        async def more() -> str:
            return str(await Holdfast.step("new", str, "z"))

        return [*found, *await asyncio.gather(more())]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == ["x", "y", "z"]


async def test_a_long_plain_await_before_a_recorded_step_is_no_edit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another branch has something new meanwhile."""
    monkeypatch.setattr(standing, "_DOUBT", 0.2)
    attempts: list[int] = []

    async def slowly() -> str:
        await asyncio.sleep(1.0)
        return str(await Holdfast.step("after", str, "x"))

    async def quickly() -> str:
        await Holdfast.step("one", str, "y")
        if len(attempts) > 1:
            return str(await Holdfast.step("two", str, "z"))
        await asyncio.Event().wait()
        return ""

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        attempts.append(1)
        quick = asyncio.create_task(quickly())
        first = await slowly()
        if len(attempts) == 1:
            raise ValueError("once more")
        return [first, await quick]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == ["x", "z"]


async def test_a_plain_sleep_beside_a_wait_is_not_cut_short(bench: Bench) -> None:
    """The signal never comes: nothing but the sleep moves the function on."""

    @bench.app.durable(name="root")
    async def root() -> str:
        waiting = asyncio.create_task(Holdfast.wait_for_signal("never"))
        await asyncio.sleep(1.5)
        found = str(await Holdfast.step("after", str, "slept"))
        waiting.cancel()
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == "slept"


async def test_a_slot_is_free_while_a_plain_sleep_goes_on_beside_a_child(bench: Bench) -> None:
    @bench.app.durable(name="child")
    async def child() -> int:
        return 1

    @bench.app.durable(name="root")
    async def root() -> int:
        async def beat() -> None:
            while True:
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        found = await child() + await child()
        beating.cancel()
        return found

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == 2


async def test_a_function_may_go_round_in_a_circle_until_a_child_has_ended(bench: Bench) -> None:
    @bench.app.durable(name="child")
    async def child() -> int:
        return 1

    @bench.app.durable(name="root")
    async def root() -> int:
        task = asyncio.create_task(child())
        while not task.done():
            await asyncio.sleep(0)
        return task.result()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == 1


async def test_joins_within_joins_take_their_turns(bench: Bench) -> None:
    """What one answer causes happens before the next one comes, however many turns it takes."""
    told: list[list[str]] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        seen: list[str] = []
        work: Any = Holdfast.step("deep", str, "deep")
        for _ in range(30):
            work = asyncio.gather(work)

        async def deep() -> None:
            await work
            seen.append(await Holdfast.step("after", str, "after"))

        async def other() -> None:
            await Holdfast.sleep(0.3)
            seen.append("slept")

        await asyncio.gather(deep(), other())
        await Holdfast.step("kept", list, seen)
        told.append(seen)
        if len(told) < 2:
            raise ValueError("once more")
        return seen

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == ["after", "slept"]
    assert told == [["after", "slept"]] * 2


async def test_a_recorded_step_that_is_gone_is_missed_beside_a_plain_circle(
    bench: Bench,
) -> None:
    """Something of its own goes on for ever: the run is parked all the same."""
    edited = False

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> None:
        async def beat() -> None:
            while True:
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        await Holdfast.step("new" if edited else "old", str, "x")
        beating.cancel()
        raise ValueError("once more")

    async with bench.worker():
        task = await bench.app.dispatch(root)

        async def recorded() -> bool:
            return "step old" in await journal(bench, task)

        await until(recorded)
        edited = True

        async def is_parked() -> bool:
            return await status(bench, task) is TaskStatus.WAITING

        await until(is_parked, within=20)
        assert "step old" in await reason_of(bench, task)


@pytest.mark.parametrize("how", ["wait_for", "wait", "alone", "as_completed"])
async def test_a_thread_of_the_functions_own_is_not_cut_short(bench: Bench, how: str) -> None:
    ran: list[int] = []

    def work() -> int:
        ran.append(1)
        time.sleep(1.6)
        return 7

    @bench.app.durable(name="root")
    async def root() -> int:
        signal = asyncio.create_task(Holdfast.wait_for_signal("never"))
        working: Any = asyncio.get_running_loop().run_in_executor(None, work)
        if how == "wait_for":
            await asyncio.wait_for(working, 20)
        elif how == "wait":
            await asyncio.wait({working, signal}, return_when=asyncio.FIRST_COMPLETED)
        elif how == "as_completed":
            for each in asyncio.as_completed([working]):
                await each
        found = await working
        signal.cancel()
        return int(found)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == 7
    assert len(ran) == 1


async def test_a_sync_function_that_computes_beside_a_wait_is_not_cut_short(bench: Bench) -> None:
    @bench.app.durable(name="root")
    def root() -> str:
        async def start() -> Any:
            return asyncio.create_task(Holdfast.wait_for_signal("never"))

        waiting = Holdfast.run(start())
        time.sleep(1.6)
        found = str(Holdfast.run(Holdfast.step("after", str, "slept")))
        waiting.get_loop().call_soon_threadsafe(waiting.cancel)
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == "slept"


async def test_a_wait_that_was_given_up_takes_no_signal_in_a_replay(bench: Bench) -> None:
    told: list[bool] = []

    @bench.app.durable(name="child")
    async def child() -> None:
        await Holdfast.sleep(2.5)

    @bench.app.durable(name="root")
    async def root() -> str:
        other = asyncio.create_task(child())
        waiting = asyncio.create_task(Holdfast.wait_for_signal("x"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.wait({waiting})
        told.append(waiting.cancelled())
        await other
        return str(await Holdfast.wait_for_signal("x"))

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await waits(bench, task)
        await bench.app.send_signal(task, "x", "hello")
        assert await task.result(timeout=30) == "hello"
    assert all(told)


@pytest.mark.parametrize("beat", [0.5, 0.001, 0.0])
async def test_what_was_given_up_with_a_failed_attempt_is_not_waited_for(
    bench: Bench, beat: float
) -> None:
    """An error of the function's own ends its group; in the next attempt there is none. Beside it
    something goes on for ever that could lead to anything."""
    attempts: list[int] = []

    def slow() -> str:
        time.sleep(0.4)
        return "slow"

    async def beats() -> None:
        while True:
            await asyncio.sleep(beat)

    async def fetch() -> None:
        await asyncio.sleep(0.1)
        if len(attempts) == 1:
            raise OSError("connection refused")

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        attempts.append(1)
        beating = asyncio.create_task(beats())
        try:
            async with asyncio.TaskGroup() as group:
                found = group.create_task(Holdfast.step("slow", slow))
                group.create_task(fetch())
        finally:
            beating.cancel()
        return found.result()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == "slow"


async def test_what_nobody_comes_to_is_waited_for_only_so_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was given up has an answer behind it, so it counts; but this time nothing fails."""
    monkeypatch.setattr(business, "_LONG", 0.5)
    attempts: list[int] = []

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    def slow() -> str:
        time.sleep(0.3)
        return "slow"

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        attempts.append(1)
        spinning = asyncio.create_task(spins())
        slowly = asyncio.create_task(Holdfast.step("slow", slow))
        try:
            await asyncio.sleep(0.1)
            if len(attempts) == 1:
                slowly.cancel()
                await asyncio.wait({slowly})
            await Holdfast.step("behind", str, "x")
            if len(attempts) == 1:
                raise ValueError("once more")
            return await slowly
        finally:
            spinning.cancel()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == "slow"


async def test_what_came_behind_a_failure_is_waited_for_too(bench: Bench) -> None:
    """Its ask was dropped with that failure, and it reached the function again: in that order."""
    attempts: list[int] = []
    told: list[list[str]] = []

    def flaky() -> int:
        if len(attempts) == 1:
            raise ValueError("flaky")
        return 1

    @bench.app.durable(name="child")
    async def child() -> str:
        await Holdfast.sleep(0.8)
        return "child"

    @bench.app.durable(name="root", retry_policy=PATIENT)
    async def root() -> list[str]:
        attempts.append(1)
        seen: list[str] = []

        async def late() -> None:
            await asyncio.sleep(0.3)
            seen.append(await Holdfast.step("late", str, "late"))

        async def early() -> None:
            seen.append(await child())

        both = [asyncio.create_task(early()), asyncio.create_task(late())]
        try:
            await Holdfast.step("flaky", flaky)
        except StepFailed:
            await both[1]
            raise
        await asyncio.gather(*both)
        told.append(list(seen))
        await Holdfast.step("kept", list, seen)
        if len(told) < 3:
            raise ValueError("once more")
        return seen

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == told[0]
    assert told == [told[0]] * 3


async def test_what_waits_inside_an_async_generator_is_put_down_like_others(bench: Bench) -> None:
    @asynccontextmanager
    async def group() -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.TaskGroup() as inside:
            yield inside

    @bench.app.durable(name="root")
    async def root() -> None:
        async with group() as inside:
            inside.create_task(Holdfast.sleep("1h"))

    async with bench.worker():
        task = await bench.app.dispatch(root)
        async with asyncio.timeout(20):  # not after a minute
            await waits(bench, task)
