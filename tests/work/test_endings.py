"""Slots that are not given away too early, connections that are not kept, errors that are told."""

import asyncio
import gc
import threading
from contextvars import copy_context
from datetime import datetime
from typing import Any
from weakref import ref

import pytest

from holdfast import TaskFailed, current
from holdfast.context import Context
from holdfast.errors import LeaseLost
from holdfast.tasks.lifecycle import Done
from tests.storm.ledger import peek
from tests.work.bench import Bench, until


async def test_a_thread_that_cannot_be_stopped_keeps_its_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.1)
    go = threading.Event()
    started: list[str] = []

    @bench.app.durable(timeout=1.0, max_tries=1)
    def hang() -> None:
        started.append("hang")
        go.wait(60)

    @bench.app.durable
    async def quick() -> None:
        started.append("quick")

    async with bench.worker(max_concurrency=1):
        try:
            hung = await bench.app.dispatch(hang)
            with pytest.raises(TaskFailed):
                await hung.result(timeout=60)
            waits = await bench.app.dispatch(quick)
            for _ in range(10):
                await asyncio.sleep(0.03)
                assert started == ["hang"]
            assert bench.leases() == 0, "nor is anything claimed that could not start"
        finally:
            go.set()
        await waits.result(timeout=60)


async def test_a_transaction_of_a_function_that_went_on_too_long_is_rolled_back(
    postgres_bench: Bench,
) -> None:
    bench, opened = postgres_bench, asyncio.Event()
    async with (await bench.store()).transaction():
        pass  # so that the function finds an open connection, and needs little of its time

    @bench.app.durable(timeout=3.0, max_tries=1)
    async def stubborn() -> str:
        async with current().transaction() as conn:
            await conn.execute("create table if not exists mine (id int)")
        opened.set()
        kept.append(conn)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in spite of it"
        return ""

    kept: list[Any] = []
    async with bench.worker():
        task = await bench.app.dispatch(stubborn)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        assert opened.is_set()
        open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'"
        assert peek(bench.place, open) == [(0,)]
        assert peek(bench.place, "select to_regclass('mine')") == [(None,)]


async def test_a_fault_that_ends_the_worker_is_told_to_whoever_started_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, inside = await bench.store(), asyncio.Event()
    real, broken = store.claim, False

    @bench.app.durable
    async def work() -> None:
        inside.set()
        await asyncio.Event().wait()

    async def claim(**ask: Any) -> Any:
        if broken:
            raise ZeroDivisionError("a fault of ours")
        return await real(**ask)

    monkeypatch.setattr(store, "claim", claim, raising=False)
    working, _ = await bench.start(drain_timeout=0.05)
    task = await bench.app.dispatch(work)
    await inside.wait()
    broken = True
    await bench.app.dispatch(work)
    await until(working.done)
    with pytest.raises(ZeroDivisionError):
        working.result()
    assert bench.leases() == 0, "it drained all the same"
    assert await bench.ends(task) == ["handed_back"]


async def test_two_workers_of_one_app_share_the_work_and_both_end(bench: Bench) -> None:
    seen: set[str] = set()
    both = asyncio.Event()

    @bench.app.durable
    async def work() -> None:
        seen.add(current().worker_id)
        if len(seen) == 2:
            both.set()
        await both.wait()

    async with bench.worker(max_concurrency=2), bench.worker(max_concurrency=2):
        tasks = await bench.app.dispatch_many([work.call() for _ in range(4)])
        for task in tasks:
            await task.result(timeout=60)
    assert seen == {"w0", "w1"}


async def test_attempts_that_ended_are_forgotten_without_the_garbage_collector(
    bench: Bench,
) -> None:
    """A worker of thousands a second has other things to do."""
    seen: list[ref[Context]] = []

    @bench.app.durable
    async def plain(i: int) -> int:
        seen.append(ref(current()))
        return i

    gc.disable()
    try:
        async with bench.worker():
            tasks = await bench.app.dispatch_many([plain.call(i) for i in range(20)])
            assert [await task.result(timeout=60) for task in tasks] == list(range(20))
            await until(lambda: [context() for context in seen] == [None] * 20)
    finally:
        gc.enable()


async def test_what_outlives_its_attempt_is_no_part_of_it_any_more(bench: Bench) -> None:
    """What it asks for is not recorded, and the same as anywhere else."""
    ended, left = asyncio.Event(), list[tuple[Context, asyncio.Task[int]]]()

    @bench.app.durable
    async def child() -> int:
        return current().uuid().version or 0

    async def go_on() -> int:
        await ended.wait()
        await bench.app.dispatch(child)
        return await child()

    @bench.app.durable
    async def plain() -> None:
        left.append((current(), asyncio.create_task(go_on())))

    async with bench.worker():
        task = await bench.app.dispatch(plain)
        await task.result(timeout=60)
        await until(lambda: bench.leases() == 0)
        ended.set()
        ((context, later),) = left
        assert await asyncio.wait_for(later, 60) == 4
        assert (context.task_id, context.cancel_requested) == (task.id, False)
        context.check_cancelled()
        with pytest.raises(LeaseLost):
            await context.progress(50.0)
        with pytest.raises(LeaseLost):
            await context.release(Done(b"null"))


async def test_a_thread_that_outlives_its_attempt_is_told_that_it_is_too_late(
    bench: Bench,
) -> None:
    ended, left = threading.Event(), list[threading.Thread]()
    heard: list[Any] = []

    def go_on() -> None:
        ended.wait(60)
        context = current()
        heard.append(context.now())
        try:
            asyncio.run(context.release(Done(b"null")))
        except BaseException as error:
            heard.append(error)

    @bench.app.durable
    def plain() -> None:
        left.append(threading.Thread(target=copy_context().run, args=(go_on,), daemon=True))
        left[0].start()

    async with bench.worker():
        await (await bench.app.dispatch(plain)).result(timeout=60)
        await until(lambda: bench.leases() == 0)
        ended.set()
        await until(lambda: len(heard) == 2)
    assert [type(one) for one in heard] == [datetime, LeaseLost], heard


async def test_an_error_is_told_with_its_notes_and_what_it_came_from(bench: Bench) -> None:
    """Where its traceback is shown: to who waits for it, and to who looks at it."""

    @bench.app.durable(max_tries=1)
    async def pay() -> None:
        try:
            raise KeyError("till")
        except KeyError as error:
            broken = RuntimeError("no luck")
            broken.add_note("it was a Friday")
            raise broken from error

    task = await bench.app.dispatch(pay)
    async with bench.worker():
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
    (attempt,) = await (await bench.app.desk()).attempts(task.id)
    assert attempt.error is not None
    told = attempt.error.traceback
    assert told == failed.value.traceback
    assert told is not None
    raised, _, cause = told.partition("note: it was a Friday\n")
    assert "raise broken from error" in raised
    assert cause.startswith("caused by KeyError: 'till'\n")
    assert 'raise KeyError("till")' in cause
