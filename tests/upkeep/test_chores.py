"""What chores ask of the store."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Observer
from holdfast.clock import ManualClock
from holdfast.store import Store
from holdfast.stores.opening import open_store
from holdfast.tasks.task import TaskStatus
from holdfast.upkeep.chores import Upkeeping, chores
from tests.contract.acts import FAILED, claim_one, finish, put, put_one, status_of

SETTINGS = Upkeeping(recovery_interval=timedelta(seconds=1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    store = await open_store("sqlite://:memory:", clock=clock)
    yield store
    await store.close()


@pytest.mark.parametrize("retried", [False, True])
async def test_children_that_run_on_for_nobody_are_cancelled_unless_they_are_taken_up_meanwhile(
    store: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, retried: bool
) -> None:
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    await finish(store, held, FAILED)
    clock.advance(11)
    look = store.orphans

    async def orphans(*asked: Any, **how: Any) -> Any:
        found = await look(*asked, **how)
        assert found.tasks == [child]
        if retried:
            assert await store.retry([parent])
        return found

    monkeypatch.setattr(store, "orphans", orphans)
    (sweep,) = (
        one.sweep
        for one in chores(store, Observer(), SETTINGS, work_came=lambda: None)
        if one.name == "orphans"
    )
    await sweep()
    assert await status_of(store, child) == (
        TaskStatus.PENDING if retried else TaskStatus.CANCELLED
    )
