"""Suspects that run as the only one in their worker, and what was lost once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.app.executors import Executors
from holdfast.tasks.task import Claimed, TaskStatus
from holdfast.work import solitude
from holdfast.work.slots import Slots
from tests.work.bench import Bench, Watcher, until
from tests.work.losing import Company, lose_in_company


async def test_what_must_run_alone_runs_as_the_only_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    company = Company()

    @bench.app.durable
    async def work(i: int) -> None:
        if i < 3:  # more work comes, and hints of it, while it runs
            await bench.app.dispatch(work, 200 + i)
        await company.visit(i)

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, suspects)
    others = await bench.app.dispatch_many([work.call(i) for i in range(100, 140)])
    async with bench.worker(max_concurrency=5):
        for task in [*suspects, *others]:
            await task.result(timeout=60)
    assert [company.met[i] for i in range(3)] == [set(), set(), set()]
    assert any(company.met[i] for i in range(100, 140)), "the others ran side by side"
    assert await bench.ends(suspects[0]) == ["lost", "lost", "done"]


async def test_what_was_lost_together_once_runs_like_all_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    everybody = asyncio.Barrier(6)

    @bench.app.durable
    async def work(i: int) -> None:
        await everybody.wait()

    lost = await bench.app.dispatch_many([work.call(i) for i in range(5)])
    await lose_in_company(bench, lost, times=1)
    other = await bench.app.dispatch(work, 100)
    async with bench.worker(max_concurrency=6):
        for task in [*lost, other]:
            await task.result(timeout=60)
    assert {(await task.state()).try_count for task in lost} == {1}, "that try was given back"


async def test_whoever_has_one_try_in_all_is_not_put_at_risk_by_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    company = Company()

    @bench.app.durable(max_tries=1)
    async def work(i: int) -> None:
        await company.visit(i)

    lost = await bench.app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, lost, times=1)
    async with bench.worker(max_concurrency=5):
        for task in lost:
            await task.result(timeout=60)
    assert company.met == {0: set(), 1: set(), 2: set()}


async def test_a_suspect_that_turned_out_to_need_the_worker_does_not_start_in_company(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it was taken it was to run in a process; before it started another one like it left
    there, for the worker's own."""
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    taking, take = False, Slots.take

    def watched(slots: Slots, tasks: Sequence[Claimed]) -> None:
        nonlocal taking
        taking = True
        take(slots, tasks)
        taking = False

    monkeypatch.setattr(Slots, "take", watched)
    monkeypatch.setattr(Executors, "isolates", lambda *_: taking)
    company, began, over = Company(), asyncio.Event(), asyncio.Event()

    watcher = Watcher()
    app = bench.new_app(observers=[watcher])

    @app.durable
    async def busy() -> None:
        company.inside.add(100)
        began.set()
        await over.wait()
        company.inside.remove(100)

    @app.durable
    async def work(i: int) -> None:
        await company.visit(i)

    suspects = await app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, suspects)
    await app.pause_queue("default")
    ahead = await app.dispatch(busy.options(queue="other"))
    async with bench.worker(app):
        await began.wait()
        await app.resume_queue("default")
        await until(lambda: len(watcher.of("claimed")) >= 2)
        over.set()
        await ahead.result(timeout=60)
        for task in suspects:
            await task.result(timeout=60)
    assert company.met == {0: set(), 1: set(), 2: set()}


async def test_one_that_hangs_while_it_is_alone_holds_up_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what may run beside others, nor the next one that should be alone."""
    monkeypatch.setattr(solitude, "_WHILE", 0.2)
    release = asyncio.Event()

    @bench.app.durable
    async def work(name: str) -> str:
        if name == "hangs":
            await release.wait()
        return name

    suspects = await bench.app.dispatch_many([work.call("hangs"), work.call("suspect")])
    await lose_in_company(bench, suspects)
    other = await bench.app.dispatch(work, "other")
    async with bench.worker(max_concurrency=5):
        assert await suspects[1].result(timeout=60) == "suspect"
        assert await other.result(timeout=60) == "other"
        release.set()
        assert await suspects[0].result(timeout=60) == "hangs"


async def test_one_that_must_run_alone_and_was_cancelled_holds_up_nobody(bench: Bench) -> None:
    @bench.app.durable
    async def work(i: int) -> int:
        return i

    tasks = await bench.app.dispatch_many([work.call(i) for i in range(4)])
    await lose_in_company(bench, tasks)
    store = await bench.store()
    real = store.claim

    unwanted = {tasks[0].id, tasks[2].id}

    async def cancelled_on_the_way(**ask: Any) -> Any:
        answer = await real(**ask)
        told = [
            msgspec.structs.replace(task, cancel_requested=task.lease.task in unwanted)
            for task in answer.tasks
        ]
        return msgspec.structs.replace(answer, tasks=told)

    store.claim = cancelled_on_the_way  # type: ignore[method-assign]
    async with bench.worker(max_concurrency=10):
        for task in tasks:
            await bench.app.wait_for(task, timeout=60)
    states = [(await task.state()).status for task in tasks]
    assert states == [TaskStatus.CANCELLED, TaskStatus.DONE] * 2
    assert bench.leases() == 0


async def test_what_must_run_alone_waits_until_the_end_of_the_others_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it to kill the worker, they would be lost with it."""
    store, go, asked = await bench.store(), asyncio.Event(), asyncio.Event()
    real, ran = store.settle, list[str]()

    @bench.app.durable
    async def work(name: str) -> None:
        ran.append(name)

    suspects = await bench.app.dispatch_many([work.call("one"), work.call("two")])
    await lose_in_company(bench, suspects)

    async def settle(settlements: Any, **more: Any) -> Any:
        asked.set()
        await go.wait()
        return await real(settlements, **more)

    monkeypatch.setattr(store, "settle", settle, raising=False)
    other = await bench.app.dispatch(work.options(priority=9), "other")
    async with bench.worker(max_concurrency=5):
        await asked.wait()
        await until(lambda: bench.leases() >= 2)
        for _ in range(10):
            await asyncio.sleep(0.02)
            assert ran == ["other"]
        go.set()
        for task in [other, *suspects]:
            await task.result(timeout=60)
