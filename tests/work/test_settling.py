"""Ends are written in batches, and one bad one harms nobody."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import InvalidInput, StoreUnreachable
from holdfast.observer import Ended, Observer
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Claimed, TaskStatus
from holdfast.work.holding import Holding
from holdfast.work.settling import Settling
from tests.app.conftest import until as until_async
from tests.work.bench import Bench, Watcher, until


async def test_what_ends_while_a_commit_is_in_flight_shares_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go, sizes = await bench.store(), asyncio.Event(), list[int]()
    real, ran = store.settle, list[int]()

    async def settle(settlements: Any, **more: Any) -> Any:
        sizes.append(len(settlements))
        if len(sizes) == 1:
            await go.wait()
        return await real(settlements, **more)

    @bench.app.durable
    async def work(i: int) -> int:
        ran.append(i)
        return i

    monkeypatch.setattr(store, "settle", settle, raising=False)
    async with bench.worker(max_concurrency=50):
        tasks = await bench.app.dispatch_many([work.call(i) for i in range(30)])
        await until(lambda: len(ran) == 30)
        go.set()
        for task in tasks:
            await task.result(timeout=60)
    assert sum(sizes) == 30
    assert len(sizes) <= 3


@pytest.mark.parametrize("fault", [InvalidInput("not this one"), ZeroDivisionError()])
async def test_one_bad_settlement_does_not_fail_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    store, go, sizes = await bench.store(), asyncio.Event(), list[int]()
    real, ran = store.settle, list[int]()

    async def settle(settlements: Any, **more: Any) -> Any:
        sizes.append(len(settlements))
        if len(sizes) == 1:
            await go.wait()
        if any(settlement.result == b'"bad"' for _, settlement in settlements):
            raise fault
        return await real(settlements, **more)

    @bench.app.durable(max_tries=1)
    async def work(i: int) -> int | str:
        ran.append(i)
        return "bad" if i == 7 else i

    monkeypatch.setattr(store, "settle", settle, raising=False)
    async with bench.worker(max_concurrency=50):
        tasks = await bench.app.dispatch_many([work.call(i) for i in range(20)])
        await until(lambda: len(ran) == 20)
        go.set()
        for i, task in enumerate(tasks):
            if i != 7:
                assert await task.result(timeout=60) == i

        # What cannot be written is let go of, and pays: it is a dead letter in the end.
        async def is_dead() -> bool:
            bench.lapse(tasks[7].id)
            return (await tasks[7].state()).status is TaskStatus.FAILED

        await until(is_dead)


async def test_a_store_that_is_away_is_asked_again_until_it_answers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher()
    app = bench.new_app(observers=[watcher])
    store = (await app.home.client()).store
    real, asked = store.settle, list[int]()

    async def settle(settlements: Any, **more: Any) -> Any:
        asked.append(len(watcher.of("renewed")))
        if len(asked) < 4 or asked[-1] == asked[0]:
            raise StoreUnreachable("not now")
        return await real(settlements, **more)

    runs: list[int] = []

    @app.durable
    async def work() -> str:
        runs.append(1)
        return "kept"

    monkeypatch.setattr(store, "settle", settle, raising=False)
    async with bench.worker(app):
        assert await (await app.dispatch(work)).result(timeout=60) == "kept"
    assert runs == [1]
    assert asked[-1] > asked[0], "its lease was renewed all the while"
    assert len(watcher.of("settled")) == 1


async def test_a_renewal_that_crosses_a_settle_calls_nothing_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher()
    app = bench.new_app(observers=[watcher])
    store = (await app.home.client()).store
    real, crossed = store.settle, list[bool]()
    go = asyncio.Event()

    async def settle(settlements: Any, **more: Any) -> Any:
        answer = await real(settlements, **more)
        before = len(watcher.of("renewed"))
        await until(lambda: len(watcher.of("renewed")) >= before + 2)
        crossed.append(True)
        return answer

    @app.durable
    async def work(wait: bool) -> int:
        if wait:
            await go.wait()
        return 1

    monkeypatch.setattr(store, "settle", settle, raising=False)
    async with bench.worker(app):
        held = await app.dispatch(work, True)  # so that there is something to renew
        await (await app.dispatch(work, False)).result(timeout=60)
        await until(lambda: crossed)
        monkeypatch.undo()
        go.set()
        assert await held.result(timeout=60) == 1
    assert [lost for _, _, lost in watcher.of("renewed") if lost] == []


async def test_a_drain_writes_what_has_ended_before_it_leaves(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked, go = await bench.store(), asyncio.Event(), asyncio.Event()
    real = store.settle

    async def settle(settlements: Any, **more: Any) -> Any:
        asked.set()
        await go.wait()
        return await real(settlements, **more)

    @bench.app.durable
    async def work() -> int:
        return 1

    monkeypatch.setattr(store, "settle", settle, raising=False)
    working, lifecycle = await bench.start()
    task = await bench.app.dispatch(work)
    await asked.wait()
    lifecycle.request_drain()
    asyncio.get_running_loop().call_later(0.2, go.set)
    await working
    assert await bench.ends(task) == ["done"]


async def test_an_old_and_a_new_grant_of_one_task_are_told_apart(bench: Bench) -> None:
    store, told = await bench.store(), list[tuple[int, frozenset[UUID]]]()

    @bench.app.durable
    async def work() -> None: ...

    task = await bench.app.dispatch(work)

    async def claim(lease: float) -> Claimed:
        lanes = list((await store.lanes()).lanes)
        answer = await store.claim(
            worker=7, lanes=lanes, want=1, lease=timedelta(seconds=lease), durable=True
        )
        return answer.tasks[0]

    class Listening(Observer):
        def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
            told.append((ended[0].task.lease.fence, refused))

    old = await claim(0.01)

    async def taken_back() -> bool:
        return bool(await store.recover())

    await until_async(taken_back)
    new = await claim(60)
    holding = Holding(SystemClock(), 60)
    settling = Settling(store, holding, Listening(), default_tries=3, written=lambda batch: None)
    done = Settlement(verdict=Verdict.DONE, result=b"null")
    settling.add(Ended(old, done, 0.0))
    settling.add(Ended(new, done, 0.0))
    running = asyncio.create_task(settling.run())
    await settling.flush()
    running.cancel()
    assert told == [
        (old.lease.fence, frozenset({task.id})),
        (new.lease.fence, frozenset()),
    ]
