"""What a run did before it was parked: known to whoever goes on with it."""

import asyncio
from typing import Any, cast

import pytest

from holdfast import Holdfast
from holdfast.store import Store
from tests.flow.acts import ONCE, journal, number_of, reason_of, waits
from tests.flow.test_done_to_its_end import SlowToAnswer
from tests.flow.test_edits import step
from tests.work.bench import Bench, until


@pytest.mark.parametrize("asks", [False, True], ids=["ends", "asks"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
async def test_what_a_run_dispatched_before_it_was_parked_is_not_dispatched_again(
    bench: Bench, no_linger: None, asks: bool, beside: bool
) -> None:
    """Each retry did."""

    def app_with(*, tells: bool, goes_on: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other() -> None: ...

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            await step("a")
            listening = asyncio.create_task(_signal()) if beside else None
            if tells:
                await app.dispatch(other)
            if goes_on:
                await step("b")
            elif asks:
                await step("c")
            else:
                return "too early"
            return str(await (listening or _signal()))

        return app, root

    app, root = app_with(tells=False, goes_on=True)
    async with bench.worker(app, queues=["default"]):
        task = await app.dispatch(root)

        async def listens() -> bool:
            return "step b" in await journal(bench, task) and "signal" in await reason_of(
                bench, task
            )

        await until(listens)
    await bench.app.send_signal(task, "go", "on")  # when that worker is gone, which would go on
    for _ in range(3):
        async with bench.worker(app_with(tells=True, goes_on=False)[0], queues=["default"]):

            async def parked() -> bool:
                return "recorded, not asked: step b" in await reason_of(bench, task)

            await until(parked)
        assert number_of(bench, "other") == 1
        assert await bench.app.retry(task)
    async with bench.worker(app_with(tells=True, goes_on=True)[0], queues=["default"]):
        assert await task.result(timeout=20) == "on"
    assert number_of(bench, "other") == 1


async def test_a_run_that_is_parked_dispatches_nothing_more(bench: Bench, no_linger: None) -> None:
    """What a branch began while the run was being parked was known to nobody."""

    def app_with(*, fits: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other(number: int) -> None: ...

        async def tell() -> None:
            for number in range(5):
                await app.dispatch(other, number)

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            await step("a")
            telling = None if fits else asyncio.create_task(tell())
            if telling:
                await asyncio.sleep(0.3)  # in the middle of a dispatch
                return "too early"
            await step("b")
            return str(await _signal())

        return app, root

    app, root = app_with(fits=True)
    async with bench.worker(app, queues=["default"]):
        task = await app.dispatch(root)
        await waits(bench, task)
    for so_often in range(1, 4):
        await _is_parked(bench, task, app_with(fits=False)[0])
        assert number_of(bench, "other") == so_often


async def test_what_is_given_up_by_a_run_that_is_parked_is_not(
    bench: Bench, no_linger: None
) -> None:
    """The mended code has its child still, although what was dispatched meanwhile is kept."""

    def app_with(*, fits: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other() -> None: ...

        @app.durable(name="charge", queue="nobody")
        async def charge() -> int:
            return 7

        async def pay() -> int:
            return await charge()

        async def tell() -> None:
            await app.dispatch(other)

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            await step("a")
            paying = asyncio.create_task(pay())
            telling = None if fits else asyncio.create_task(tell())
            if telling:
                await asyncio.sleep(0.3)  # in the middle of a dispatch
                paying.cancel()
                return "too early"
            await step("b")
            return f"{await _signal()} {await paying}"

        return app, root

    app, root = app_with(fits=True)
    async with bench.worker(app, queues=["default"]):
        task = await app.dispatch(root)
        await waits(bench, task)
    await _is_parked(bench, task, app_with(fits=False)[0])
    assert number_of(bench, "other") == 1
    await bench.app.send_signal(task, "go", "on")
    async with bench.worker(app_with(fits=True)[0], queues=["default", "nobody"]):
        assert await task.result(timeout=30) == "on 7"
    assert number_of(bench, "charge") == 1


async def _is_parked(bench: Bench, task: Any, app: Any) -> None:
    """By a worker of this app, whose dispatches take a while; and it is retried."""
    await bench.app.send_signal(task, "stir", "it")
    client = await app.home.client()
    slow = SlowToAnswer(client.store)
    slow.after = 0.6
    client.store = cast(Store, slow)
    async with bench.worker(app, queues=["default"]):

        async def parked() -> bool:
            return "recorded, not asked: step b" in await reason_of(bench, task)

        await until(parked)
    assert await bench.app.retry(task)


async def _signal() -> Any:
    return await Holdfast.wait_for_signal("go")
