"""Expire: what was not started in time ends, and says so."""

from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    HANDED_BACK,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    seconds,
    status_of,
    waiting,
)


async def test_a_task_that_was_not_started_in_time_ends(store, clock):
    id = await put_one(store, expires=seconds(30))
    await clock.advance(31)
    assert await store.expire() == 1
    ending = await store.ending(id)
    assert (ending.status, ending.failure.type) == (TaskStatus.FAILED, "Expired")
    assert (await store.get(id)).last_error == "not done before it expired"
    assert await claim(store) == []


async def test_nothing_expires_before_its_time(store, clock, dump):
    await put_one(store, expires=seconds(30))
    await put_one(store)
    await clock.advance(29)
    before = await dump()
    assert await store.expire() == 0
    assert await dump() == before


async def test_a_delayed_task_expires(store, clock):
    id = await put_one(store, expires=seconds(30), delay=seconds(600))
    await clock.advance(31)
    assert await store.expire() == 1
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_a_task_that_is_due_after_its_expiry_is_not_started(store, clock):
    id = await put_one(store, expires=seconds(30), delay=seconds(20))
    await clock.advance(31)
    assert await claim(store) == []
    assert (await store.ending(id)).failure.type == "Expired"


async def test_a_running_task_is_left_to_its_worker(store, clock):
    id = await put_one(store, expires=seconds(30))
    claimed = await claim_one(store)
    await clock.advance(31)
    assert await store.expire() == 0
    await finish(store, claimed)
    assert await status_of(store, id) is TaskStatus.DONE


async def test_a_running_task_that_is_put_back_after_its_expiry_ends(store, clock):
    id = await put_one(store, expires=seconds(30))
    claimed = await claim_one(store)
    await clock.advance(31)
    await store.expire()
    await finish(store, claimed, HANDED_BACK)
    assert await status_of(store, id) is TaskStatus.FAILED
    await clock.advance(60)
    assert await store.expire() == 0


async def test_a_waiting_task_expires(store, clock):
    id = await put_one(store, expires=seconds(30))
    await finish(store, await claim_one(store), waiting())
    await clock.advance(31)
    assert await store.expire() == 1
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_one_pass_is_bounded(store, clock):
    await put(store, 5, expires=seconds(1))
    await clock.advance(2)
    assert [await store.expire(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_running_tasks_do_not_hide_those_that_have_expired(store, clock):
    await put(store, 3, expires=seconds(10))
    await claim(store)
    late = await put_one(store, expires=seconds(11))
    await clock.advance(12)
    assert sum([await store.expire(1) for _ in range(5)]) == 1
    assert await status_of(store, late) is TaskStatus.FAILED


async def test_the_end_of_an_expired_child_wakes_its_parent(store, clock):
    parent = await put_one(store)
    held = await claim_one(store)
    await put_one(store, parent=parent, expires=seconds(5))
    await finish(store, held, waiting())
    await clock.advance(6)
    await store.expire()
    await store.sweep_wakes()
    assert await status_of(store, parent) is TaskStatus.PENDING
