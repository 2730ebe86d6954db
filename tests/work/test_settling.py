"""Ends are written in batches, and one bad one harms nobody."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import RetryPolicy, current
from holdfast.clock import SystemClock
from holdfast.errors import InvalidInput, StoreError, StoreUnreachable
from holdfast.observer import Ended, Observer
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Claimed, TaskStatus
from holdfast.work import settling
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


async def test_large_results_are_written_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go, sizes = await bench.store(), asyncio.Event(), list[int]()
    real, ran = store.settle, list[int]()

    async def settle(settlements: Any, **more: Any) -> Any:
        sizes.append(sum(len(settlement.result) for _, settlement in settlements))
        if len(sizes) == 1:
            await go.wait()
        return await real(settlements, **more)

    @bench.app.durable
    async def work(i: int) -> str:
        ran.append(i)
        return "x" * (i * 100)

    monkeypatch.setattr(store, "settle", settle, raising=False)
    monkeypatch.setattr(settling, "_MOST_BYTES", 2000)
    async with bench.worker(max_concurrency=50):
        tasks = await bench.app.dispatch_many([work.call(i) for i in range(30)])
        await until(lambda: len(ran) == 30)
        go.set()
        assert [len(await task.result(timeout=60)) for task in tasks] == [
            i * 100 for i in range(30)
        ]
    lone = [i * 100 + 2 for i in range(20, 30)]  # larger than what goes together
    assert max(size for size in sizes if size not in lone) <= 2000
    assert len(sizes) < 30


@pytest.mark.parametrize("fault", [InvalidInput("not this one"), ZeroDivisionError()])
async def test_a_result_that_cannot_be_stored_is_an_error_of_its_task_alone(
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

    @bench.app.durable(max_tries=2, retry_policy=RetryPolicy(initial_delay=0.01))
    async def work(i: int) -> int | str:
        ran.append(i)
        return "bad" if i == 7 else i

    monkeypatch.setattr(store, "settle", settle, raising=False)
    monkeypatch.setattr(settling, "_FIRST_PAUSE", 0.001)
    async with bench.worker(max_concurrency=50, lease_duration=60):
        tasks = await bench.app.dispatch_many([work.call(i) for i in range(20)])
        await until(lambda: len(ran) == 20)
        go.set()
        for i, task in enumerate(tasks):
            if i != 7:
                assert await task.result(timeout=60) == i
        ending = await bench.app.wait_for(tasks[7], timeout=60)
    assert ending.status is TaskStatus.FAILED
    assert ending.failure
    assert ending.failure.type == "ResultNotStored"
    assert str(fault) in ending.failure.message
    assert await bench.ends(tasks[7]) == ["retry", "failed"]
    assert ran.count(7) == 2


async def test_what_cannot_be_settled_at_all_is_let_go_of(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease lapses, so that others get the task; it is not renewed for ever."""
    store, ran = await bench.store(), list[int]()
    real, bad = store.settle, list[UUID]()

    async def settle(settlements: Any, **more: Any) -> Any:
        if len(ran) == 1 and any(lease.task in bad for lease, _ in settlements):
            raise StoreError("not this one")
        return await real(settlements, **more)

    @bench.app.durable
    async def work() -> int:
        bad.append(current().task_id)
        ran.append(1)
        return len(ran)

    monkeypatch.setattr(store, "settle", settle, raising=False)
    monkeypatch.setattr(settling, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(settling, "_MOST_INSISTED", 3)
    async with bench.worker(lease_duration=0.6):
        task = await bench.app.dispatch(work)
        assert await task.result(timeout=60) == 2
    assert await bench.ends(task) == ["lost", "done"]


async def test_a_store_that_refuses_for_a_while_gets_the_result_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a standby does during a failover, or a full disk: nothing has to run again."""
    store, ran, asked = await bench.store(), list[int](), list[int]()
    real = store.settle

    async def settle(settlements: Any, **more: Any) -> Any:
        asked.append(len(settlements))
        if len(asked) < 40:
            raise StoreError("cannot execute INSERT in a read-only transaction")
        return await real(settlements, **more)

    @bench.app.durable(max_tries=1)
    async def work(i: int) -> int:
        ran.append(i)
        return i

    monkeypatch.setattr(store, "settle", settle, raising=False)
    monkeypatch.setattr(settling, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(settling, "_LONGEST_PAUSE", 0.01)
    async with bench.worker(lease_duration=60):
        tasks = await bench.app.dispatch_many([work.call(i) for i in range(5)])
        assert [await task.result(timeout=60) for task in tasks] == list(range(5))
    assert sorted(ran) == list(range(5))


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


async def crossed(bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str) -> list[Any]:
    """Two renewals come between the commit of an attempt's end and its answer; what was lost."""
    watcher, go = Watcher(), asyncio.Event()
    app = bench.new_app(observers=[watcher])
    store = (await app.home.client()).store
    settle, transaction = store.settle, store.transaction

    async def renewals() -> None:
        before = len(watcher.of("renewed"))
        await until(lambda: len(watcher.of("renewed")) >= before + 2)

    async def late_settle(settlements: Any, **more: Any) -> Any:
        answer = await settle(settlements, **more)
        if how == "release":
            await renewals()
        return answer

    @contextlib.asynccontextmanager
    async def late_transaction() -> AsyncIterator[Any]:
        async with transaction() as conn:
            yield conn
        await renewals()

    @app.durable
    async def hold() -> int:
        await go.wait()
        return 1

    @app.durable
    async def work() -> int:
        if how == "release":
            context = current()
            await app.release_lease(context.task_id, context.worker_id, "done")
        else:
            async with current().transaction():
                pass
        return 2

    async with bench.worker(app, lease_duration=30, heartbeat_interval=0.2):
        held = await app.dispatch(hold)  # so that there is something to renew
        await until(lambda: watcher.of("renewed"))
        monkeypatch.setattr(store, "settle", late_settle, raising=False)
        monkeypatch.setattr(store, "transaction", late_transaction, raising=False)
        task = await app.dispatch(work)
        await until(
            lambda: any(
                ended.task.lease.task == task.id
                for _, batch, _ in watcher.of("settled")
                for ended in batch
            )
        )
        monkeypatch.undo()
        go.set()
        assert await held.result(timeout=10) == 1
        assert await bench.ends(task) == ["done"]
    return [lost for _, _, lost in watcher.of("renewed") if lost]


async def test_a_renewal_that_crosses_a_release_calls_nothing_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await crossed(bench, monkeypatch, "release") == []


async def test_a_renewal_that_crosses_a_commit_calls_nothing_lost(
    postgres_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await crossed(postgres_bench, monkeypatch, "transaction") == []


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
    writer = Settling(
        store, holding, Listening(), default_tries=3, written=lambda batch, refused: None
    )
    done = Settlement(verdict=Verdict.DONE, result=b"null")
    writer.add(Ended(old, done, 0.0))
    writer.add(Ended(new, done, 0.0))
    running = asyncio.create_task(writer.run())
    await writer.flush()
    running.cancel()
    assert told == [
        (old.lease.fence, frozenset({task.id})),
        (new.lease.fence, frozenset()),
    ]
