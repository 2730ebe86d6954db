"""`Holdfast.step`: runs inside the function, once."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    HoldfastError,
    NonRetryable,
    RetryPolicy,
    Snooze,
    TaskFailed,
    current,
)
from holdfast.errors import StepFailed
from holdfast.stores.flows import Flows
from tests.flow.acts import ONCE, SOON, journal, number_of
from tests.work.bench import Bench


async def test_a_recorded_step_never_runs_again(bench: Bench) -> None:
    ran: list[str] = []
    attempts: list[int] = []

    async def effect(name: str) -> str:
        ran.append(name)
        return name.upper()

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> list[str]:
        attempts.append(1)
        found = [await Holdfast.step("one", effect, "a"), await Holdfast.step("two", effect, "b")]
        if len(attempts) < 3:
            raise ValueError("again")
        return [*found, await Holdfast.step("three", effect, "c")]

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["A", "B", "C"]
    assert ran == ["a", "b", "c"]
    assert await journal(bench, task) == ["step one", "step two", "step three"]


async def test_a_failing_step_is_tried_again_by_the_policy_of_its_function(bench: Bench) -> None:
    ran: list[str] = []

    def effect(name: str, fails: int) -> str:
        ran.append(name)
        if ran.count(name) <= fails:
            raise ConnectionError(f"{name} failed")
        return name

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> Any:
        await Holdfast.step("good", effect, "good", 0)
        return await Holdfast.step("bad", effect, "bad", 2)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == "bad"
    assert ran == ["good", "bad", "bad", "bad"]


async def test_a_step_that_fails_for_good_says_what_it_was(bench: Bench) -> None:
    async def effect() -> None:
        raise ConnectionError("refused")

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        await Holdfast.step("call", effect)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed, match="ConnectionError: refused"):
            await task.result(timeout=60)
    assert await bench.ends(task) == ["retry", "retry", "failed"]


@pytest.mark.parametrize("lingers", [True, False])
async def test_a_failure_that_was_caught_stays_caught(
    bench: Bench, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lingers:
        monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)
    ran: list[str] = []
    told: list[str] = []

    async def effect() -> None:
        ran.append("bad")
        raise ConnectionError("refused")

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> Any:
        try:
            await Holdfast.step("bad", effect)
        except StepFailed as failed:
            told.append(failed.type)
        await Holdfast.sleep(0.05)
        return await Holdfast.step("plan b", str, "b")

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == "b"
    assert ran == ["bad"]
    assert set(told) == {"ConnectionError"}


async def test_a_failure_that_is_let_through_late_runs_again_in_the_next_attempt(
    bench: Bench, no_linger: None
) -> None:
    ran: list[str] = []

    async def effect() -> str:
        ran.append("x")
        if len(ran) == 1:
            raise ConnectionError("refused")
        return "fine"

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> Any:
        try:
            return await Holdfast.step("bad", effect)
        except StepFailed:
            await Holdfast.sleep(0.02)
            raise

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == "fine"
    assert len(ran) == 2


async def test_sync_steps_run_in_threads(bench: Bench) -> None:
    @bench.app.durable(name="flow")
    async def flow() -> Any:
        return await Holdfast.step("where", lambda: threading.current_thread().name)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) != threading.current_thread().name


async def test_steps_run_side_by_side_and_each_is_recorded(bench: Bench) -> None:
    ran: list[int] = []
    attempts: list[int] = []
    together = asyncio.Barrier(5)

    async def effect(i: int) -> int:
        await together.wait()
        ran.append(i)
        return i * i

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> list[int]:
        found = await asyncio.gather(*(Holdfast.step("square", effect, i) for i in range(5)))
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("again")
        return found

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == [0, 1, 4, 9, 16]
    assert sorted(ran) == [0, 1, 2, 3, 4]


async def test_equal_steps_are_told_apart_by_their_number(bench: Bench) -> None:
    ran: list[int] = []
    attempts: list[int] = []

    async def effect() -> int:
        ran.append(len(ran))
        return ran[-1]

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> list[int]:
        found = [await Holdfast.step("same", effect) for _ in range(3)]
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("again")
        return found

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == [0, 1, 2]
    assert len(ran) == 3


async def test_a_step_inside_a_step_is_refused(bench: Bench) -> None:
    async def outer() -> str:
        try:
            await Holdfast.step("inner", str, "x")
        except HoldfastError as error:
            return str(error)
        return "accepted"

    @bench.app.durable(name="flow")
    async def flow() -> Any:
        return await Holdfast.step("outer", outer)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert "not inside a step" in await task.result(timeout=60)


@pytest.mark.parametrize("asked", [False, True], ids=["first ask", "later"])
async def test_a_thread_that_a_coroutine_started_is_told_where_to_ask(
    bench: Bench, asked: bool
) -> None:
    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i

    async def elsewhere() -> None:
        await Holdfast.step("x", int)

    asks = (
        lambda: child(1),
        lambda: Holdfast.run(child(1)),
        lambda: asyncio.run(elsewhere()),
        lambda: current().uuid(),
    )

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> list[str]:
        if asked:
            await Holdfast.step("before", int)
        told = []
        for ask in asks:
            try:
                await asyncio.to_thread(ask)
            except HoldfastError as error:
                told.append(str(error))
        return told

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        told = await task.result(timeout=60)
    assert len(told) == len(asks)
    assert all("await it in the function itself" in one for one in told)
    assert number_of(bench, "child") == 0


async def test_verbs_outside_of_a_worker_say_where_they_belong() -> None:
    for verb in (
        lambda: Holdfast.step("x", str),
        lambda: Holdfast.sleep(1),
        lambda: Holdfast.wait_for_signal("x"),
        lambda: Holdfast.patched("x"),
    ):
        with pytest.raises(HoldfastError, match="inside a durable function"):
            verb()


async def test_a_cleanup_in_finally_does_not_run_while_the_function_only_waits(
    bench: Bench, no_linger: None
) -> None:
    ran: list[str] = []
    go = asyncio.Event()

    @bench.app.durable(name="child", queue="slow")
    async def child() -> int:
        await go.wait()
        return 5

    async def cleanup(name: str) -> None:
        ran.append(name)

    @bench.app.durable(name="flow")
    async def flow() -> int:
        try:
            return await child()
        finally:
            await Holdfast.step("cleanup", cleanup, "step")

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(flow)
        while "waiting" not in await bench.ends(task):
            await asyncio.sleep(0.01)
        assert ran == []
        async with bench.worker(queues=["slow"]):
            go.set()
            assert await task.result(timeout=60) == 5
    assert ran == ["step"]


async def test_a_result_that_cannot_be_stored_is_a_failure_of_its_step(bench: Bench) -> None:
    async def strange() -> Any:
        return object()

    async def huge() -> Any:
        return "x" * 2_000_000

    async def nearly() -> Any:
        return "x" * (1024 * 1024 - 50)

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> list[str]:
        told = []
        for step in (strange, huge, nearly):
            try:
                await Holdfast.step(step.__name__, step)
            except StepFailed as failed:
                told.append(failed.step)
        return told

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        told = await task.result(timeout=60)
    assert told[:2] == ["strange", "huge"]


async def test_what_was_done_about_a_failure_is_not_held_against_the_next_attempt(
    bench: Bench,
) -> None:
    ran: list[str] = []

    async def effect(name: str) -> str:
        ran.append(name)
        if ran.count("bad") < 3 and name == "bad":
            raise ConnectionError("refused")
        return name

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> Any:
        await Holdfast.step("first", effect, "first")
        try:
            await Holdfast.step("bad", effect, "bad")
        except StepFailed:
            await Holdfast.step("tell", effect, "tell")
            raise
        return await Holdfast.step("last", effect, "last")

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == "last"
    assert ran == ["first", "bad", "tell", "bad", "bad", "last"]


@pytest.mark.parametrize("written", [False, True])
async def test_a_step_that_ran_is_recorded_also_where_the_function_is_stopped_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """It runs out of time while its step is written: before the database heard of it, or before
    the answer came."""
    ran: list[str] = []
    held: list[bool] = []
    record = Flows._record_steps

    async def slow(self: Flows, asked: Any) -> Any:
        if not held:
            held.append(True)
            if written:
                await record(self, asked)
            await asyncio.Event().wait()
        return await record(self, asked)

    async def effect() -> int:
        ran.append("ran")
        return 7

    @bench.app.durable(name="flow", retry_policy=SOON, timeout=timedelta(seconds=1))
    async def flow() -> int:
        return int(await Holdfast.step("one", effect))

    monkeypatch.setattr(Flows, "_record_steps", slow)
    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == 7
    assert ran == ["ran"]
    assert await bench.ends(task) == ["retry", "done"]


@pytest.mark.parametrize("beside", [True, False])
async def test_a_step_that_hears_of_a_cancellation_of_somebody_else_has_failed(
    bench: Bench, beside: bool
) -> None:
    async def hears() -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> None:
        first = Holdfast.step("hears", hears)
        await (asyncio.gather(first, Holdfast.step("other", str)) if beside else first)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed, match="CancelledError"):
            await task.result(timeout=30)


@pytest.mark.parametrize("error", [NonRetryable("no"), OSError("no"), ValueError("no")])
async def test_what_a_steps_error_means_is_the_same_after_a_replay(
    bench: Bench, no_linger: None, error: Exception
) -> None:
    """Something is done about it, the function is put down meanwhile, and then lets it through."""
    attempts: list[str | None] = []

    def fail() -> None:
        raise error

    @bench.app.durable(
        name="root", retry_policy=RetryPolicy(max_attempts=3, initial_delay=0, retry_for=(OSError,))
    )
    async def root() -> None:
        try:
            await Holdfast.step("fail", fail)
        except StepFailed as failed:
            await Holdfast.sleep(0.3)  # such as to take back what was done before
            attempts.append(failed.traceback)
            raise

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed) as found:
            await task.result(timeout=30)
    assert found.value.type.endswith(type(error).__name__)
    assert len(attempts) == (3 if isinstance(error, OSError) else 1)
    assert attempts[0]
    assert "raise error" in attempts[0]


async def test_a_step_that_asks_to_be_called_later_does_so_after_a_replay(
    bench: Bench, no_linger: None
) -> None:
    attempts: list[int] = []

    def later() -> None:
        raise Snooze(0.1)

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> int:
        attempts.append(current().attempt)
        try:
            await Holdfast.step("later", later)
        except StepFailed:
            await Holdfast.sleep(0.1)
            if len(attempts) < 6:
                raise
        return current().attempt

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == 1
