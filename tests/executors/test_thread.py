"""Threads: truly at once, and in nobody's way."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.context import current
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.executors.thread import ThreadExecutor
from holdfast.registry import Registry
from tests.executors.acts import MemoryKeeper, attempt, soon, within

ROOT = Path(__file__).parents[2]
durable = Registry().durable


def run(executor, function, *args, **kwargs):
    return asyncio.create_task(executor.run(function, attempt(function, *args, **kwargs)))


async def test_two_calls_run_at_once():
    meeting = threading.Barrier(2, timeout=60)

    @durable
    def meet() -> int:
        return meeting.wait()

    executor = ThreadExecutor()
    both = await within(asyncio.gather(run(executor, meet), run(executor, meet)))
    assert sorted(both) == [b"0", b"1"]
    await executor.close()


async def test_a_call_that_never_ends_holds_up_nobody_and_is_counted():
    go = threading.Event()
    freed = asyncio.Event()

    @durable
    def never() -> None:
        go.wait(60)

    @durable
    def quick() -> int:
        return 5

    executor = ThreadExecutor(freed=freed.set)
    stuck = run(executor, never)
    assert await within(run(executor, quick)) == b"5"
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(stuck)
    assert executor.stranded == 1
    assert await within(run(executor, quick)) == b"5"
    assert not freed.is_set()
    go.set()
    await within(freed.wait())
    assert executor.stranded == 0
    await executor.close()


async def test_a_stranded_call_can_report_nothing_more():
    begun, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen = []

    @durable
    def late() -> None:
        here = current()
        loop.call_soon_threadsafe(begun.set)
        go.wait(60)
        try:
            here.progress(50)
        except LeaseLost as error:
            seen.append(error)

    keeper = MemoryKeeper()
    executor = ThreadExecutor()
    call = run(executor, late, keeper=keeper)
    await within(begun.wait())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    await soon(lambda: executor.stranded == 0)
    assert len(seen) == 1
    assert keeper.reports == []
    await executor.close()


async def test_threads_are_used_again_and_end_with_the_executor():
    @durable
    def name() -> str:
        return threading.current_thread().name

    executor = ThreadExecutor()
    first = await run(executor, name)
    await soon(lambda: executor._idle == 1)
    assert await run(executor, name) == first
    await executor.close()
    await soon(lambda: first.decode().strip('"') not in {t.name for t in threading.enumerate()})


async def test_a_thread_that_rested_long_enough_ends():
    @durable
    def name() -> str:
        return threading.current_thread().name

    executor = ThreadExecutor(idle_seconds=0.01)
    first = (await run(executor, name)).decode().strip('"')
    await soon(lambda: first not in {t.name for t in threading.enumerate()})
    assert await run(executor, name)


async def test_a_transaction_is_refused_with_the_way_out():
    @durable
    def buy() -> None:
        current().transaction()

    executor = ThreadExecutor()
    with pytest.raises(HoldfastError, match="make the function `async def`"):
        await run(executor, buy)
    await executor.close()


async def test_a_coroutine_hidden_behind_a_decorator_is_run():
    async def hidden() -> int:
        await asyncio.sleep(0)
        return 5

    @durable
    def wrapped() -> object:
        return hidden()

    executor = ThreadExecutor()
    assert await run(executor, wrapped) == b"5"
    await executor.close()


async def test_saved_sync_is_refused_on_an_event_loop():
    @durable
    def wrapped() -> None: ...

    with pytest.raises(HoldfastError, match=r"await current\(\)\.saved\(\)"):
        attempt(wrapped).saved_sync()


PROGRAM = """
import asyncio, threading
from holdfast.executors.thread import ThreadExecutor
from holdfast.registry import durable
from tests.executors.acts import attempt

@durable
def never() -> None:
    print("begun", flush=True)
    loop.call_soon_threadsafe(begun.set)
    threading.Event().wait()

async def main():
    global begun, loop
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    call = asyncio.create_task(ThreadExecutor().run(never, attempt(never)))
    await begun.wait()
    call.cancel()

asyncio.run(main())
"""


async def test_a_call_that_never_ends_does_not_hold_up_the_exit():
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "begun\n", "")
