"""Cancel: what is cancelled never starts, what runs is told soon."""

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast import TaskCancelled, current
from holdfast.notifier import Hint
from tests.work.bench import Bench, until

SELDOM: dict[str, Any] = {"lease_duration": 600.0, "heartbeat_interval": 200.0}

# "cancelled": where a heartbeat was quicker than the second look of the cancel itself.
ASKED = ("requested", "cancelled")


async def test_a_cancelled_task_never_starts(bench: Bench) -> None:
    ran: list[int] = []

    @bench.app.durable
    async def work(i: int) -> None:
        ran.append(i)

    first, second = await bench.app.dispatch(work, 1), await bench.app.dispatch(work, 2)
    assert await first.cancel() == "cancelled"
    async with bench.worker():
        await second.result(timeout=60)
        with pytest.raises(TaskCancelled):
            await first.result(timeout=60)
    assert ran == [2]
    assert await second.cancel() == "ended"


async def test_a_running_coroutine_is_stopped_by_a_hint(bench: Bench) -> None:
    inside = asyncio.Event()

    @bench.app.durable
    async def work() -> None:
        inside.set()
        await asyncio.Event().wait()

    # Were it not for the hint, a renewal would see it after minutes.
    async with bench.worker(**SELDOM):
        task = await bench.app.dispatch(work)
        await inside.wait()
        assert await task.cancel() in ASKED
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
    assert await bench.ends(task) == ["cancelled"]


async def test_without_hints_a_cancel_is_seen_within_one_heartbeat(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = asyncio.Event()

    @bench.app.durable
    async def work() -> None:
        inside.set()
        await asyncio.Event().wait()

    async with bench.worker(heartbeat_interval=0.3):
        task = await bench.app.dispatch(work)
        await inside.wait()
        monkeypatch.setattr(bench.app.home.notifier(), "tell", lambda hints: None)
        assert await task.cancel() in ASKED
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_after_missed_hints_a_worker_looks_for_cancels_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = asyncio.Event()

    @bench.app.durable
    async def work() -> None:
        inside.set()
        await asyncio.Event().wait()

    notifier = bench.app.home.notifier()
    real, deaf = notifier.tell, False

    def tell(hints: Any) -> None:
        real([hint for hint in hints if not (deaf and hint.kind == "cancel")])

    monkeypatch.setattr(notifier, "tell", tell)
    async with bench.worker(**SELDOM):
        task = await bench.app.dispatch(work)
        await inside.wait()
        deaf = True
        await task.cancel()
        notifier.tell([Hint("work", "*")])
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_a_sync_function_sees_it_where_it_looks(bench: Bench) -> None:
    inside = threading.Event()

    @bench.app.durable
    def work() -> None:
        inside.set()
        while True:
            current().check_cancelled()
            time.sleep(0.005)

    async with bench.worker(**SELDOM):
        task = await bench.app.dispatch(work)
        await until(inside.is_set)
        assert await task.cancel() in ASKED
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_a_function_that_finishes_in_spite_of_a_cancel_is_done(bench: Bench) -> None:
    inside = asyncio.Event()

    @bench.app.durable
    async def work() -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cleaned up"
        return ""

    async with bench.worker():
        task = await bench.app.dispatch(work)
        await inside.wait()
        await task.cancel()
        assert await task.result(timeout=60) == "cleaned up"


async def test_a_cancel_is_not_overtaken_by_a_retry(bench: Bench) -> None:
    inside = asyncio.Event()

    @bench.app.durable(max_tries=100)
    async def work() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("gone") from None

    async with bench.worker():
        task = await bench.app.dispatch(work)
        await inside.wait()
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_a_cancel_between_claim_and_start_is_settled_without_starting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim itself says so: asked for while the task stood under another worker's lease."""
    ran: list[int] = []
    store = await bench.store()

    @bench.app.durable
    async def work() -> None:
        ran.append(1)

    task = await bench.app.dispatch(work)
    real = store.claim

    async def with_cancel(**ask: Any) -> Any:
        import msgspec

        answer = await real(**ask)
        told = [msgspec.structs.replace(one, cancel_requested=True) for one in answer.tasks]
        return msgspec.structs.replace(answer, tasks=told)

    monkeypatch.setattr(store, "claim", with_cancel, raising=False)
    async with bench.worker():
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
    assert not ran
