"""A function outlives any number of workers, as long as it gets on between two deaths."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed, TaskHandle
from holdfast.flow import arrivals
from tests.flow.doomed import Doomed
from tests.work.bench import Bench

NEVER = 1_000_000


class Victims:
    """Workers that do nothing else, one after another; each takes over from the last."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.doomed: Doomed | None = None

    def kill(self) -> None:
        assert self.doomed
        self.doomed.dead = True
        self.doomed.died.set()

    async def deaths(self, task: TaskHandle[Any], fatal: int = NEVER) -> int:
        """Until the task has ended: each dies after so many writes, or when it is killed."""
        deaths = 0
        while await self._dies(task, fatal):
            deaths += 1
            assert deaths < 50
        return deaths

    async def _dies(self, task: TaskHandle[Any], fatal: int) -> bool:
        client = await self.bench.app.home.client()
        store = client.store
        doomed = client.store = self.doomed = Doomed(store, fatal, after=True)
        working, lifecycle = await self.bench.start(drain_timeout=0.0)
        died = asyncio.create_task(doomed.died.wait())
        ended = asyncio.create_task(self.bench.app.wait_for(task))
        await asyncio.wait({died, ended}, return_when=asyncio.FIRST_COMPLETED)
        lifecycle.request_drain()
        await working
        client.store = store
        died.cancel()
        ended.cancel()
        self.bench.lapse(task.id)
        return doomed.dead


@pytest.mark.parametrize("linger", [0.0, 1.0], ids=["put down", "in memory"])
async def test_a_function_that_gets_on_outlives_all_its_workers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, linger: float
) -> None:
    monkeypatch.setattr(arrivals, "_LINGER", linger)
    ran: list[int] = []

    @bench.app.durable(max_tries=2)
    async def long() -> int:
        for n in range(6):
            await Holdfast.step("effect", ran.append, n)
            await Holdfast.sleep(0.01)
        return len(ran)

    task = await bench.app.dispatch(long)
    assert await Victims(bench).deaths(task, fatal=2) > 4
    assert await task.result(timeout=60) == 6
    assert ran == list(range(6))


async def test_a_function_that_kills_its_workers_is_a_dead_letter_all_the_same(
    bench: Bench,
) -> None:
    """Two tries; and one that was free, since the first worker had recorded something."""
    victims = Victims(bench)

    @bench.app.durable(max_tries=2)
    async def kills() -> None:
        await Holdfast.step("before", str, 1)
        await Holdfast.step("kills", victims.kill)

    task = await bench.app.dispatch(kills)
    assert await victims.deaths(task) == 3
    with pytest.raises(TaskFailed) as failed:
        await task.result(timeout=60)
    assert failed.value.type == "WorkerLost"


async def test_errors_are_counted_for_the_whole_run(bench: Bench, no_linger: None) -> None:
    """A rest between two of them gives no try back, or a retry that waits would never end."""
    began: list[int] = []

    @bench.app.durable(retry_policy=RetryPolicy(max_attempts=3, initial_delay=0.01))
    async def late() -> None:
        await Holdfast.step("begin", began.append, 1)
        await asyncio.wait_for(Holdfast.wait_for_signal("never"), 0.05)

    task = await bench.app.dispatch(late)
    async with bench.worker():
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
    assert failed.value.type == "TimeoutError"
    ends = await bench.ends(task)
    assert ends.count("retry") == 2
    assert ends.count("waiting") >= 3  # it rested before each of them
    assert began == [1]
