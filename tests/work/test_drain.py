"""A worker that leaves: finishes, hands back, and leaves no lease behind."""

import asyncio
import threading
from typing import Any

import pytest

from holdfast import current
from holdfast.store import Store
from holdfast.tasks.task import TaskStatus
from holdfast.work.slots import Slots
from holdfast.work.status import WorkerState
from tests.work.bench import Bench, until


async def test_what_runs_is_finished(bench: Bench) -> None:
    door, inside = asyncio.Event(), asyncio.Event()

    @bench.app.durable
    async def work() -> str:
        inside.set()
        await door.wait()
        return "done"

    working, lifecycle = await bench.start()
    task = await bench.app.dispatch(work)
    await inside.wait()
    bench.app.request_worker_drain(lifecycle)
    await until(lambda: lifecycle.state is WorkerState.DRAINING)
    assert not working.done()
    door.set()
    await lifecycle.wait_until_stopped()
    await working
    assert await bench.ends(task) == ["done"]
    assert bench.leases() == 0


async def test_what_does_not_finish_is_handed_back_with_its_place_and_its_attempt(
    bench: Bench,
) -> None:
    inside: list[int] = []
    door = asyncio.Event()
    ran: list[tuple[int, int]] = []

    @bench.app.durable(max_tries=1)
    async def work(i: int) -> None:
        ran.append((i, current().attempt))
        if not door.is_set():
            inside.append(i)
            await asyncio.Event().wait()

    first, second = await bench.app.dispatch(work, 1), await bench.app.dispatch(work, 2)
    working, lifecycle = await bench.start(max_concurrency=1, drain_timeout=0.05)
    await until(lambda: inside == [1])
    lifecycle.request_drain()
    await working
    assert bench.leases() == 0
    state = await first.state()
    assert (state.status, state.try_count) == (TaskStatus.PENDING, 0)
    assert await bench.ends(first) == ["handed_back"]
    door.set()
    async with bench.worker(max_concurrency=1):
        await first.result(timeout=60)
        await second.result(timeout=60)
    assert ran == [(1, 1), (1, 1), (2, 1)], "it kept its place and its only attempt"


async def test_what_was_taken_ahead_is_handed_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.work.slots._STALE_AHEAD", 600.0)  # not before the drain
    hold = asyncio.Event()
    inside: list[int] = []

    @bench.app.durable
    async def work(i: int) -> None:
        if i >= 40:
            inside.append(i)
            await hold.wait()

    working, lifecycle = await bench.start(max_concurrency=2)
    for task in await bench.app.dispatch_many([work.call(i) for i in range(40)]):
        await task.result(timeout=60)
    tasks = await bench.app.dispatch_many([work.call(i) for i in range(40, 60)])
    await until(lambda: len(inside) == 2 and bench.leases() > 2)
    lifecycle.request_drain()
    await until(lambda: bench.leases() == 2)
    hold.set()
    await working
    assert len(inside) == 2, "nothing starts while a worker drains"
    assert bench.leases() == 0
    states = [await task.state() for task in tasks]
    assert sum(state.status is TaskStatus.DONE for state in states) == 2
    assert all(s.try_count == 0 for s in states if s.status is TaskStatus.PENDING)


async def test_cancelling_serve_hands_back_and_is_passed_on(bench: Bench) -> None:
    inside = asyncio.Event()

    @bench.app.durable(max_tries=1)
    async def work() -> None:
        inside.set()
        await asyncio.Event().wait()

    task = await bench.app.dispatch(work)
    working, lifecycle = await bench.start(drain_timeout=30.0)
    await inside.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert lifecycle.state is WorkerState.STOPPED
    assert bench.leases() == 0
    assert await bench.ends(task) == ["handed_back"]
    assert (await task.state()).try_count == 0


@pytest.mark.parametrize("how", ["drain", "cancel"])
async def test_a_claim_under_way_leaves_no_lease_behind(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked, go = await bench.store(), asyncio.Event(), asyncio.Event()
    real = store.claim
    ran: list[int] = []

    @bench.app.durable
    async def work() -> None:
        ran.append(1)

    async def slow(**ask: Any) -> Any:
        answer = await real(**ask)
        if answer.tasks:
            asked.set()
            await go.wait()
        return answer

    monkeypatch.setattr(store, "claim", slow, raising=False)
    working, lifecycle = await bench.start()
    task = await bench.app.dispatch(work)
    await asked.wait()
    lifecycle.request_drain() if how == "drain" else working.cancel()
    await until(lambda: lifecycle.state is WorkerState.DRAINING)
    go.set()
    await asyncio.wait({working}, timeout=60)
    assert working.done()
    assert bench.leases() == 0
    assert not ran
    assert (await task.state()).try_count == 0


async def test_a_thread_that_will_not_end_does_not_keep_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.1)
    inside, go = threading.Event(), threading.Event()

    @bench.app.durable(max_tries=1)
    def work() -> str:
        inside.set()
        go.wait(60)
        return "too late"

    task = await bench.app.dispatch(work)
    working, lifecycle = await bench.start(drain_timeout=0.05)
    try:
        await until(inside.is_set)
        lifecycle.request_drain()
        async with asyncio.timeout(60):
            await working
        assert bench.leases() == 0
        assert await bench.ends(task) == ["handed_back"]
    finally:
        go.set()
    assert (await task.state()).status is TaskStatus.PENDING


async def test_a_coroutine_that_answers_a_drain_with_an_error_is_handed_back(bench: Bench) -> None:
    inside = asyncio.Event()

    @bench.app.durable(max_tries=1)
    async def work() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("the client was closed") from None

    task = await bench.app.dispatch(work)
    working, lifecycle = await bench.start(drain_timeout=0.05)
    await inside.wait()
    lifecycle.request_drain()
    await working
    assert await bench.ends(task) == ["handed_back"]


async def test_the_overview_follows_the_worker(bench: Bench) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    @bench.app.durable
    async def work() -> None:
        inside.set()
        await go.wait()

    assert bench.app.worker_status_overview() == {"ready": False, "draining": False, "workers": []}
    working, lifecycle = await bench.start(max_concurrency=4)
    task = await bench.app.dispatch(work)
    await inside.wait()
    overview = bench.app.worker_status_overview()
    assert (overview["ready"], overview["draining"]) == (True, False)
    (one,) = overview["workers"]
    assert (one["state"], one["active_jobs"], one["max_jobs"]) == ("ready", 1, 4)
    assert one["active_job_ids"] == [str(task.id)]
    bench.app.request_worker_drain(lifecycle)
    await until(lambda: lifecycle.state == "draining")
    overview = bench.app.worker_status_overview()
    assert (overview["ready"], overview["draining"]) == (True, True)
    go.set()
    await lifecycle.wait_until_stopped()
    await working
    overview = bench.app.worker_status_overview()
    assert (overview["ready"], overview["draining"]) == (False, False)


async def test_workers_that_stopped_are_told_of_until_the_next_one_comes(bench: Bench) -> None:
    def told() -> list[str]:
        return [one["state"] for one in bench.app.worker_status_overview()["workers"]]

    for _ in range(3):
        working, lifecycle = await bench.start()
        assert told() == ["ready"]
        lifecycle.request_drain()
        await working
        assert told() == ["stopped"]  # a probe must see that nobody works here any more
    (one, first), (other, second) = await bench.start(), await bench.start()
    assert told() == ["ready", "ready"]
    first.request_drain()
    await one
    assert told() == ["stopped", "ready"]
    second.request_drain()
    await other


async def test_a_worker_that_cannot_start_says_so_and_leaves_no_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await bench.store()

    async def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("this registry is broken")

    monkeypatch.setattr(type(store), "register", refuse)
    with pytest.raises(ValueError, match="broken"):
        await bench.app.serve(lease_duration=1.0)
    assert "holdfast-renewal" not in [thread.name for thread in threading.enumerate()]


async def test_a_worker_whose_start_is_cancelled_leaves_no_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = await bench.store(), threading.Event()

    async def wait(*_: Any, **__: Any) -> None:
        asked.set()
        await asyncio.sleep(0.3)

    monkeypatch.setattr(type(store), "register", wait)
    working = asyncio.create_task(bench.app.serve(lease_duration=1.0))
    await until(asked.is_set)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    names = [thread.name for thread in threading.enumerate()]
    assert "holdfast-renewal" not in names


async def test_a_worker_that_ends_signs_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.work.renewal._FAREWELL", 60.0)
    async with bench.worker():
        store: Store = await bench.store()
        (record,) = await store.workers()
        assert record.status != "stopped"
    (record,) = await store.workers()
    assert record.status == "stopped"


async def test_the_drain_timeout_is_one_deadline_for_all_phases(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that takes its time leaves less of it to what runs."""
    store, left, asked = await bench.store(), list[float](), asyncio.Event()
    claim, drain, go = store.claim, Slots.drain, asyncio.Event()

    async def slow(**ask: Any) -> Any:
        asked.set()
        await go.wait()
        return await claim(**ask)

    async def watched(slots: Slots, patience: float) -> None:
        left.append(patience)
        await drain(slots, patience)

    @bench.app.durable
    async def work() -> None: ...

    monkeypatch.setattr(store, "claim", slow, raising=False)
    monkeypatch.setattr(Slots, "drain", watched)
    working, lifecycle = await bench.start(drain_timeout=60)
    await asked.wait()
    lifecycle.request_drain()
    asyncio.get_running_loop().call_later(0.3, go.set)
    await working
    assert left
    assert left[0] < 59.8
