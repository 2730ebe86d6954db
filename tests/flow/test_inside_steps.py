"""A step is part of its attempt: it hears what its function would, and holds its slot."""

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast import Holdfast, TaskCancelled, TaskFailed, current
from tests.work.bench import Bench, until


class Loop:
    """A sync step that ends only when it hears that it should."""

    def __init__(self) -> None:
        self.began, self.told = threading.Event(), threading.Event()
        self.may_listen = threading.Event()
        self.may_listen.set()

    def __call__(self) -> None:
        self.began.set()
        while True:
            self.may_listen.wait()
            time.sleep(0.005)
            try:
                current().check_cancelled()
            except TaskCancelled:
                self.told.set()
                raise


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("sync", [False, True])
async def test_a_step_sees_a_cancel(bench: Bench, sync: bool, beside: bool) -> None:
    loop = Loop()

    @bench.app.durable
    async def function() -> None:
        if beside:
            await asyncio.gather(Holdfast.step("loop", loop), Holdfast.step("other", int))
        await Holdfast.step("loop", loop)

    @bench.app.durable
    def sync_function() -> None:
        Holdfast.run(Holdfast.step("loop", loop))

    async with bench.worker():
        task = await bench.app.dispatch(sync_function if sync else function)
        await until(loop.began.is_set)
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        await until(loop.told.is_set)


@pytest.mark.parametrize("bound", [{"timeout": "0.3s"}, {"expires": "0.3s"}])
async def test_a_step_sees_that_its_time_is_over(bench: Bench, bound: dict[str, Any]) -> None:
    loop = Loop()

    @bench.app.durable(max_tries=1, **bound)
    async def function() -> None:
        await Holdfast.step("loop", loop)

    async with bench.worker():
        task = await bench.app.dispatch(function)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        await until(loop.told.is_set)


async def test_a_step_sees_that_the_lease_is_lost(bench: Bench) -> None:
    loop = Loop()

    @bench.app.durable(max_tries=1)
    async def function() -> None:
        await Holdfast.step("loop", loop)

    async with bench.worker():
        task = await bench.app.dispatch(function)
        await until(loop.began.is_set)
        assert await (await bench.store()).revoke(task.id, 1)
        await until(loop.told.is_set)


async def test_a_step_that_cannot_be_stopped_keeps_its_slot(bench: Bench) -> None:
    loop = Loop()
    loop.may_listen.clear()

    @bench.app.durable(timeout="0.3s", max_tries=1)
    async def function() -> None:
        await Holdfast.step("loop", loop)

    @bench.app.durable
    async def other() -> None: ...

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(function)
        await until(loop.began.is_set)
        behind = await bench.app.dispatch(other)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        with pytest.raises(TimeoutError):
            await behind.result(timeout=0.5)
        loop.may_listen.set()
        await behind.result(timeout=60)


async def test_a_transaction_in_a_step_is_refused_with_the_way_out(bench: Bench) -> None:
    async def write() -> None:
        async with current().transaction():
            pass

    @bench.app.durable(max_tries=1)
    async def function() -> None:
        await Holdfast.step("write", write)

    async with bench.worker():
        task = await bench.app.dispatch(function)
        with pytest.raises(TaskFailed, match="behind the last step"):
            await task.result(timeout=60)


@pytest.mark.parametrize("sync", [False, True])
async def test_progress_of_a_sync_step_is_written_when_the_call_returns(
    bench: Bench, sync: bool
) -> None:
    def half() -> Any:
        current().progress(50, "half way", save={"row": 500})
        return current().saved_sync()

    @bench.app.durable
    async def function() -> Any:
        return await Holdfast.step("half", half)

    @bench.app.durable
    def sync_function() -> Any:
        return Holdfast.run(Holdfast.step("half", half))

    async with bench.worker():
        task = await bench.app.dispatch(sync_function if sync else function)
        assert await task.result(timeout=60) == {"row": 500}
        state = await bench.app.state_of(task)
        assert (state.progress, state.progress_message) == (50, "half way")
