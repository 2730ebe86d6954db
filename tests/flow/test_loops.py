"""Timers of asyncio in durable functions, and in plain ones, on the event loops that people use."""

import asyncio
from typing import Any

import pytest
import uvloop

from holdfast import Holdfast, RetryPolicy, TaskFailed

LOOPS: dict[str, Any] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Any:
    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(main())

    return run


def test_a_timeout_that_does_not_come_changes_nothing(run: Any) -> None:
    async def main() -> Any:
        async with Holdfast.bootstrap("sqlite://:memory:", serve=True) as app:

            @app.durable(max_tries=1)
            async def plain() -> int:
                async with asyncio.timeout(60):
                    await asyncio.sleep(0.01)
                await asyncio.wait_for(asyncio.sleep(0.01), 60)
                return 1

            @app.durable(max_tries=1)
            async def flowing() -> int:
                async with asyncio.timeout(60):
                    one: int = await Holdfast.step("one", lambda: 1)
                    return await plain() + one

            return await (await app.dispatch(flowing)).result(timeout=60)

    assert run(main) == 2


def test_a_plain_function_that_timed_out_once_has_all_its_time_in_the_next_try(run: Any) -> None:
    tries: list[int] = []

    async def main() -> Any:
        async with Holdfast.bootstrap("sqlite://:memory:", serve=True) as app:

            @app.durable(retry_policy=RetryPolicy(max_attempts=3, initial_delay=0.01))
            async def slow_at_first() -> int:
                tries.append(1)
                async with asyncio.timeout(0.05 if len(tries) == 1 else 60):
                    await asyncio.sleep(600 if len(tries) == 1 else 0.06)
                return len(tries)

            task = await app.dispatch(slow_at_first)
            value = await task.result(timeout=60)
            store = (await app.home.client()).store
            return value, (await store.journal(task.id)).steps

    assert run(main) == (2, [])


def test_a_durable_function_that_timed_out_once_has_all_its_time_in_the_next_try(run: Any) -> None:
    tries: list[int] = []

    async def main() -> Any:
        async with Holdfast.bootstrap("sqlite://:memory:", serve=True) as app:

            @app.durable(retry_policy=RetryPolicy(max_attempts=2, initial_delay=0.01))
            async def waits() -> Any:
                tries.append(1)
                await Holdfast.step("first", lambda: 1)
                async with asyncio.timeout(0.3):
                    return await Holdfast.wait_for_signal("go")

            task = await app.dispatch(waits)
            while len(tries) < 2:
                await asyncio.sleep(0.01)
            await app.send_signal(task, "go", "now")
            return await task.result(timeout=60)

    assert run(main) == "now"


def test_a_failure_that_the_next_step_answers_is_recorded_before_it(run: Any) -> None:
    async def main() -> Any:
        async with Holdfast.bootstrap("sqlite://:memory:", serve=True) as app:
            seen: list[list[str]] = []

            async def look() -> None:
                store = (await app.home.client()).store
                tasks = (await app.list_tasks(status="running")).tasks
                steps = (await store.journal(tasks[0].id)).steps
                seen.append([step.name for step in steps])

            def card() -> None:
                raise ValueError("declined")

            @app.durable(max_tries=1)
            async def pay() -> None:
                try:
                    await Holdfast.step("card", card)
                except TaskFailed:
                    await Holdfast.step("paypal", look)

            await (await app.dispatch(pay)).result(timeout=60)
            return seen

    assert run(main) == [["step card"]]
