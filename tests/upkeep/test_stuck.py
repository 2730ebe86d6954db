"""Attempts that run for too long: told of once, by whoever has the turn; recovered on demand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, Observer
from holdfast.clock import ManualClock
from holdfast.observer import Stuck
from holdfast.store import Store
from holdfast.stores.opening import open_store
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Lease
from holdfast.upkeep.stuck import StuckTasks
from tests.contract.acts import claim_one, put_one
from tests.waiting import eventually

DAY = timedelta(days=1)
QUICK: dict[str, Any] = {"lease_duration": 60, "heartbeat_interval": 0.2}


class Ears(Observer):
    def __init__(self) -> None:
        self.heard: list[Stuck] = []

    def stuck(self, tasks: Sequence[Stuck]) -> None:
        self.heard += tasks


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    store = await open_store("sqlite://:memory:", clock=clock)
    yield store
    await store.close()


def watch(store: Store, ears: Ears, after: float | None = None, on_stuck: str = "report"):
    span = None if after is None else timedelta(seconds=after)
    return StuckTasks(store, ears, after=span, on_stuck=on_stuck)  # type: ignore[arg-type]


async def test_an_attempt_is_told_of_once_however_many_workers_look(store, clock):
    ears = Ears()
    watches = [watch(store, ears) for _ in range(3)]
    id = await put_one(store, "render", queue="pages")
    await claim_one(store, lease=DAY)
    for _ in range(40):
        clock.advance(30)
        for one in watches:
            assert await one.sweep() == 0
    (told,) = ears.heard
    assert (told.task, told.type, told.queue, told.withdrawn) == (id, "render", "pages", False)
    assert 600 <= told.seconds <= 630


async def test_what_is_usual_for_a_type_decides(store, clock):
    """Ten times the 95th percentile of what was done lately."""
    ears = Ears()
    for n in range(20):
        await put_one(store, "slow")
        held = await claim_one(store, lease=DAY)
        clock.advance(3600 if n == 0 else 120)
        await done(store, held.lease)
    await put_one(store, "slow")
    await claim_one(store, lease=DAY)
    clock.advance(1190 * 30)
    await watch(store, ears).sweep()
    assert ears.heard == []
    clock.advance(311)
    await watch(store, ears).sweep()
    assert len(ears.heard) == 1


async def done(store: Store, lease: Lease) -> None:
    await store.settle([(lease, Settlement(verdict=Verdict.DONE, result=b"1"))])


async def test_with_recover_the_lease_is_withdrawn(store, clock):
    ears = Ears()
    id = await put_one(store)
    held = await claim_one(store, lease=DAY)
    clock.advance(5)
    assert await watch(store, ears, 10, "recover").sweep() == 0
    clock.advance(6)
    assert await watch(store, ears, 10, "recover").sweep() == 1
    assert [told.withdrawn for told in ears.heard] == [True]
    assert (await store.renew([held.lease], DAY)).lost == {id}
    assert len(await store.recover()) == 1


async def test_a_worker_recovers_a_stuck_task_and_its_function_is_stopped(tmp_path: Path):
    ears, stopped = Ears(), asyncio.Event()
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db", observers=[ears])
    attempts = 0

    @app.durable(name="hang")
    async def hang() -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return attempts

    async with app:
        lifecycle = app.create_worker_lifecycle("w")
        serving = asyncio.create_task(
            app.serve(lifecycle=lifecycle, stuck_after=0.3, on_stuck="recover", **QUICK)
        )
        task = await app.dispatch(hang)
        async with asyncio.timeout(60):
            await stopped.wait()
        # The second attempt may be stuck as well, on a machine that stands still.
        assert await task.result(timeout=60) > 1
        assert {(told.task, told.worker) for told in ears.heard} == {(task.id, "w")}
        await eventually(lambda: _counted(app))
        lifecycle.request_drain()
        await serving


async def _counted(app: Holdfast) -> bool:
    return bool(app.worker_status_overview()["workers"][0]["tasks_recovered"] > 0)


async def test_another_word_than_report_or_recover_is_refused(tmp_path: Path):
    async with Holdfast(f"sqlite:///{tmp_path}/holdfast.db") as app:
        with pytest.raises(InvalidInput, match="'report' or 'recover'"):
            await app.serve(on_stuck="explode")
