"""Wakes: a waiting task goes on when what it waits for has come, never before, never not."""

import pytest

from holdfast.ids import new_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    claim,
    claim_one,
    finish,
    ids_of,
    put,
    put_one,
    retry,
    seconds,
    status_of,
    waiting,
)


async def _family(store, children: int = 1, **fields):
    """A parent under a lease, and its children under theirs."""
    parent = await put_one(store)
    held = await claim_one(store)
    await put(store, children, "job:child", parent=parent, **fields)
    return parent, held, await claim(store)


async def _moved(store, parent) -> bool:
    return await status_of(store, parent) is TaskStatus.PENDING


async def test_a_childs_end_wakes_its_parent(store):
    parent, held, (child,) = await _family(store)
    await finish(store, held, waiting())
    assert await status_of(store, parent) is TaskStatus.WAITING
    await finish(store, child)
    assert ids_of(await claim(store)) == [parent]


async def test_a_child_that_ends_before_its_parent_waits_is_not_missed(store):
    parent, held, (child,) = await _family(store)
    await finish(store, child)
    await finish(store, held, waiting())
    assert ids_of(await claim(store)) == [parent]


async def test_parent_and_child_may_settle_in_one_batch(store):
    parent, held, (child,) = await _family(store)
    assert await store.settle([(held.lease, waiting()), (child.lease, DONE)]) == frozenset()
    assert await _moved(store, parent)


async def test_any_of_several_children_wakes_a_parent_that_waits_for_one(store):
    parent, held, (first, *_) = await _family(store, 3)
    await finish(store, held, waiting(wakes=1))
    await finish(store, first)
    assert await _moved(store, parent)


async def test_a_join_waits_for_all(store):
    parent, held, children = await _family(store, 3)
    await finish(store, held, waiting(wakes=3))
    for child in children:
        assert not await _moved(store, parent)
        await finish(store, child)
    assert await _moved(store, parent)


async def test_a_join_is_complete_when_all_settle_at_once(store):
    parent, held, children = await _family(store, 3)
    await finish(store, held, waiting(wakes=3))
    await finish(store, children)
    assert await _moved(store, parent)
    assert len((await store.news(parent, [])).wakes) == 3


@pytest.mark.parametrize("end", [FAILED, CANCELLED], ids=lambda s: s.verdict.value)
async def test_a_join_hears_at_once_that_a_child_failed(store, end):
    parent, held, (first, *_) = await _family(store, 3)
    await finish(store, held, waiting(wakes=3))
    await finish(store, first, end)
    assert await _moved(store, parent)


async def test_a_join_hears_at_once_that_a_child_was_cancelled_before_it_started(store):
    parent = await put_one(store)
    held = await claim_one(store)
    first, _ = await put(store, 2, parent=parent)
    await finish(store, held, waiting(wakes=2))
    assert await store.cancel([first]) == {first: "cancelled"}
    assert await _moved(store, parent)


async def test_a_join_hears_at_once_that_a_child_was_lost_for_good(store, clock):
    parent, held, _ = await _family(store, 1, max_tries=1)
    await finish(store, held, waiting(wakes=2))
    await clock.advance(61)
    await store.recover()
    assert await _moved(store, parent)


async def test_a_child_that_is_tried_again_wakes_nobody(store):
    parent, held, (child,) = await _family(store)
    await finish(store, held, waiting())
    await finish(store, child, retry(60))
    assert not await _moved(store, parent)


async def test_a_wake_that_was_read_does_not_wake_again(store):
    parent, held, (first, second) = await _family(store, 2)
    await finish(store, held, waiting())
    await finish(store, first)
    again = await claim_one(store)
    wakes = (await store.news(parent, [])).wakes
    assert len(wakes) == 1
    await finish(store, again, waiting(seen=wakes))
    assert await status_of(store, parent) is TaskStatus.WAITING
    assert (await store.news(parent, [])).wakes == []
    await finish(store, second)
    assert await _moved(store, parent)


async def test_a_wake_that_came_after_the_reading_is_not_forgotten(store):
    parent, held, (first, second) = await _family(store, 2)
    await finish(store, held, waiting())
    await finish(store, first)
    again = await claim_one(store)
    wakes = (await store.news(parent, [])).wakes
    await finish(store, second)
    await finish(store, again, waiting(seen=wakes))
    assert await _moved(store, parent)


async def test_wakes_are_read_with_the_steps_that_they_brought(store):
    parent, held, (child,) = await _family(store)
    await finish(store, child)
    wakes = (await store.news(parent, [])).wakes
    await store.record(held.lease, [], seen=wakes)
    assert (await store.news(parent, [])).wakes == []
    await finish(store, held, waiting())
    assert await status_of(store, parent) is TaskStatus.WAITING


async def test_only_a_tasks_own_wakes_are_forgotten(store):
    parent, held, (child,) = await _family(store)
    await finish(store, child)
    wakes = (await store.news(parent, [])).wakes
    await put_one(store, "job:stranger")
    stranger = await claim_one(store)
    await store.record(stranger.lease, [], seen=wakes)
    await finish(store, stranger, waiting(seen=wakes))
    assert (await store.news(parent, [])).wakes == wakes
    await finish(store, held)


async def test_a_timer_wakes_a_join_that_is_not_complete(store, clock):
    parent, held, (first, *_) = await _family(store, 2)
    await finish(store, held, waiting(timer=30, wakes=2))
    await finish(store, first)
    assert not await _moved(store, parent)
    await clock.advance(31)
    assert ids_of(await claim(store)) == [parent]


async def test_waking_who_does_not_wait_moves_nothing(store, dump):
    ids = [await put_one(store), await put_one(store, delay=seconds(60)), new_id()]
    await claim_one(store)
    before = await dump()
    assert await store.wake_up(ids) == 0
    assert await dump() == before


# ── the net ──────────────────────────────────────────────────────────────────────────────────


class Forgetful:
    """A driver whose process dies before it looks who can go on."""

    def __init__(self, driver) -> None:
        self._driver = driver

    async def call(self, verb, /, **parameters):
        if verb == "wake_up":
            return [(0,)]
        return await self._driver.call(verb, **parameters)

    def __getattr__(self, name):
        return getattr(self._driver, name)


async def test_the_sweep_finds_who_was_not_woken(store, keeper):
    parent, held, (child,) = await _family(store)
    await finish(store, held, waiting())
    await finish(SqlStore(Forgetful(keeper.driver)), child)
    assert await status_of(store, parent) is TaskStatus.WAITING
    assert await store.sweep_wakes() == 1
    assert ids_of(await claim(store)) == [parent]
    assert await store.sweep_wakes() == 0


async def test_the_sweep_leaves_those_whose_wakes_have_not_all_come(store):
    parent, held, (first, *_) = await _family(store, 2)
    await finish(store, held, waiting(wakes=2))
    await finish(store, first)
    assert await store.sweep_wakes() == 0
    assert await status_of(store, parent) is TaskStatus.WAITING


async def test_joins_that_are_not_complete_hide_nobody_from_the_sweep(store, keeper):
    for _ in range(3):
        _, held, (first, *_) = await _family(store, 2)
        await finish(store, held, waiting(wakes=2))
        await finish(store, first)
        await claim(store)
    parent, held, (child,) = await _family(store)
    await finish(store, held, waiting())
    await finish(SqlStore(Forgetful(keeper.driver)), child)
    assert await store.sweep_wakes(1) == 1
    assert await _moved(store, parent)


async def test_the_sweep_is_bounded(store, keeper):
    forgetful = SqlStore(Forgetful(keeper.driver))
    for _ in range(3):
        _, held, (child,) = await _family(store)
        await finish(store, held, waiting())
        await finish(forgetful, child)
    assert [await store.sweep_wakes(2) for _ in range(3)] == [2, 1, 0]
