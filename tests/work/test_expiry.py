"""`expires` bounds the whole of a task: whoever runs it then is stopped, for good."""

import asyncio
import threading
import time

import pytest

from holdfast import RetryPolicy, TaskCancelled, TaskFailed, current
from tests.work.bench import Bench, until


async def test_a_coroutine_that_runs_when_its_task_expires_is_stopped(bench: Bench) -> None:
    stopped = asyncio.Event()

    @bench.app.durable(expires="0.5s", retry_policy=RetryPolicy(max_attempts=5))
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with bench.worker():
        task = await bench.app.dispatch(endless)
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
        assert failed.value.type == "Expired"
        assert stopped.is_set()
    assert await bench.ends(task) == ["failed"]
    assert (await task.state()).last_error == "not done before it expired"


async def test_a_thread_is_told_and_its_task_ends_without_it(bench: Bench) -> None:
    told = threading.Event()

    @bench.app.durable(expires="0.5s")
    def endless() -> None:
        while True:
            time.sleep(0.005)
            try:
                current().check_cancelled()
            except TaskCancelled:
                told.set()
                raise

    async with bench.worker():
        task = await bench.app.dispatch(endless)
        with pytest.raises(TaskFailed, match="Expired"):
            await task.result(timeout=60)
        await until(told.is_set)


async def test_the_shorter_of_two_times_counts(bench: Bench) -> None:
    @bench.app.durable(expires="1h", timeout="0.2s", max_tries=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with bench.worker():
        task = await bench.app.dispatch(slow)
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
        assert failed.value.type == "TimeoutError"


async def test_a_task_that_nobody_serves_ends_soon_after_its_time(bench: Bench) -> None:
    @bench.app.durable(queue="nobody", expires="2s")
    async def unserved() -> None: ...

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(unserved)
        with pytest.raises(TaskFailed, match="Expired"):
            await task.result(timeout=20)
