"""What was dispatched is known to the next try, also where its attempt had to be given up, or a
thread was still at it."""

import asyncio
from collections.abc import Sequence
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.answers import Written
from holdfast.errors import StoreError
from holdfast.flow.blocking import Blocking
from holdfast.flow.ending import Ending
from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import Draft
from holdfast.work.slots import Slots
from tests.flow.acts import SOON, number_of
from tests.work.bench import Bench


async def test_who_is_given_up_at_its_timeout_dispatches_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.2)
    go, lives = asyncio.Event(), []

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON, timeout=0.3)
    async def flow() -> int:
        lives.append(1)
        await Holdfast.step("one", int)
        await bench.app.dispatch(other)
        if len(lives) == 1:
            try:
                await asyncio.sleep(3600)
            finally:
                await go.wait()  # it closes something slowly
        return len(lives)

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=30) == 2
        go.set()
    assert await bench.ends(task) == ["retry", "done"]
    assert number_of(bench, "other") == 1


async def test_a_thread_that_dispatches_as_its_time_is_over_does_so_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = []

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON, timeout=0.5)
    def flow() -> int:
        lives.append(1)
        Holdfast.run(Holdfast.step("one", int))
        bench.app.dispatch_sync(other)
        return len(lives)

    real = SqlStore.enqueue

    async def slow(store: SqlStore, drafts: Sequence[Draft], **more: Any) -> list[UUID]:
        found = await real(store, drafts, **more)
        if drafts[0].type == "other" and len(lives) == 1:
            await asyncio.sleep(1.0)
        return found

    monkeypatch.setattr(SqlStore, "enqueue", slow)
    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=30) == 2
    assert number_of(bench, "other") == 1


async def test_who_is_given_up_while_the_store_refuses_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stayed `running` for ever, in its slot, with a lease that was renewed."""
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.2)
    go, lives, is_full = asyncio.Event(), list[int](), False
    real = SqlStore.record

    async def record(store: SqlStore, *what: Any, **more: Any) -> Written:
        if is_full:
            raise StoreError("the disk is full")
        return await real(store, *what, **more)

    monkeypatch.setattr(SqlStore, "record", record)

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON, timeout=0.3)
    async def flow() -> int:
        nonlocal is_full
        lives.append(1)
        is_full = False
        await Holdfast.step("one", int)
        await bench.app.dispatch(other)
        if len(lives) == 1:
            is_full = True
            try:
                await asyncio.sleep(3600)
            finally:
                await go.wait()
        return len(lives)

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=30) == 2
        go.set()
    assert "may do again what it did" in caplog.text


async def test_nobody_writes_beside_one_that_writes_what_it_came_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.01)
    looked, escaped = asyncio.Event(), list[BaseException]()
    real_close, real_give_up = Ending.close, Slots._give_up

    async def close(flow: Ending) -> Any:
        await looked.wait()
        return await real_close(flow)

    async def escape(_: Ending, error: BaseException) -> None:
        escaped.append(error)

    def give_up(slots: Slots, attempt: Any) -> None:
        real_give_up(slots, attempt)
        looked.set()

    @bench.app.durable(name="flow")
    async def flow(number: int) -> str:
        if number:
            await Holdfast.step("one", int)
            await Holdfast.continue_as_new(number - 1)
        return "end"

    monkeypatch.setattr(Ending, "close", close)
    monkeypatch.setattr(Ending, "escape", escape)
    monkeypatch.setattr(Slots, "_give_up", give_up)
    async with bench.worker():
        task = await bench.app.dispatch(flow, 1)
        assert await task.result(timeout=30) == "end"
    assert not escaped


async def test_a_thread_that_was_about_to_dispatch_as_its_time_was_over_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had looked what was known of it; its next try does it."""
    lives: list[int] = []
    second, left = Event(), Event()

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON, timeout=0.5)
    def flow() -> int:
        lives.append(1)
        if len(lives) == 2:
            second.set()
        Holdfast.run(Holdfast.step("one", int))
        bench.app.dispatch_sync(other)
        return len(lives)

    real = Blocking.carry_out

    async def late(blocking: Blocking, effect: Any) -> bytes:
        is_first = not second.is_set() and second.wait(20)
        try:
            return await real(blocking, effect)
        finally:
            if is_first:
                left.set()

    monkeypatch.setattr(Blocking, "carry_out", late)
    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=30) == 2
        assert await asyncio.to_thread(left.wait, 20)
    assert number_of(bench, "other") == 1
