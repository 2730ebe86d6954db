"""Who waits for what another had asked for is told of its end (decision 29)."""

import asyncio

import pytest

from holdfast import TaskFailed
from tests.flow.acts import ONCE, number_of, waits
from tests.work.bench import Bench


@pytest.mark.parametrize("ends", ["done", "failed", "cancelled"])
async def test_who_was_put_down_hears_at_once_how_what_another_had_asked_for_has_ended(
    bench: Bench, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a look by the clock: the sweep comes once a minute."""
    monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)
    monkeypatch.setattr("holdfast.flow.arrivals._STRANGER", 3600.0)
    go = asyncio.Event()

    @bench.app.durable(name="rate", idempotent=True, retry_policy=ONCE)
    async def rate(day: int) -> int:
        await go.wait()
        if ends == "failed":
            raise ValueError("closed today")
        return 10 * day

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent(days: list[int]) -> list[int]:
        return await rate.map(days)

    async with bench.worker():
        whole = await bench.app.dispatch(rate, 1)
        waiting = [await bench.app.dispatch(parent, [1, 1]) for _ in range(5)]
        for task in waiting:
            await waits(bench, task)
        if ends == "cancelled":
            await bench.app.cancel(whole)
        else:
            go.set()
        for task in waiting:
            if ends == "done":
                assert await task.result(timeout=30) == [10, 10]
            else:
                with pytest.raises(TaskFailed, match=r"closed|cancelled"):
                    await task.result(timeout=30)
    assert number_of(bench, "rate") == 1


async def test_who_shares_by_a_key_given_by_hand_looks_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is told to nobody: most functions are shared by nobody."""
    monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)
    monkeypatch.setattr("holdfast.flow.arrivals._STRANGER", 0.5)
    go = asyncio.Event()

    @bench.app.durable(name="rate")
    async def rate() -> int:
        await go.wait()
        return 10

    @bench.app.durable(name="parent")
    async def parent() -> int:
        return await rate.options(idempotency_key="one")()

    async with bench.worker():
        await bench.app.dispatch(rate.options(idempotency_key="one"))
        task = await bench.app.dispatch(parent)
        await waits(bench, task)
        go.set()
        assert await task.result(timeout=30) == 10


async def test_more_than_can_be_watched_are_waited_for_in_turns(
    bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.flow.arrivals._MOST_WATCHED", 2)
    go = asyncio.Event()

    @bench.app.durable(name="rate", cached=True)
    async def rate(day: int) -> int:
        await go.wait()
        return 10 * day

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        return await rate.map(range(5))

    async with bench.worker(max_concurrency=10):
        rates = [await bench.app.dispatch(rate, day) for day in range(5)]
        task = await bench.app.dispatch(parent)
        await waits(bench, task)
        store = await bench.store()
        assert [await store.wake_watchers([r.id]) for r in rates] == [[task.id]] * 2 + [[]] * 3
        go.set()
        assert await task.result(timeout=30) == [0, 10, 20, 30, 40]
