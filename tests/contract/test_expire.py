"""Expire: what was not started in time ends, and says so."""

import pytest

from holdfast.answers import Expired
from holdfast.observer import Observer
from holdfast.tasks.lifecycle import EXPIRED, Settlement, Verdict
from holdfast.tasks.task import TaskStatus
from holdfast.upkeep.chores import Upkeeping, chores
from tests.contract.acts import (
    HANDED_BACK,
    MINUTE,
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
    assert [one.task for one in await store.expire()] == [id]
    ending = await store.ending(id)
    assert (ending.status, ending.failure.type) == (TaskStatus.FAILED, "Expired")
    assert (await store.get(id)).last_error == "not done before it expired"
    assert await claim(store) == []


async def test_nothing_expires_before_its_time(store, clock, dump):
    await put_one(store, expires=seconds(30))
    await put_one(store)
    await clock.advance(29)
    before = await dump()
    assert await store.expire() == []
    assert await dump() == before


async def test_a_delayed_task_expires(store, clock):
    id = await put_one(store, expires=seconds(30), delay=seconds(600))
    await clock.advance(31)
    assert [one.task for one in await store.expire()] == [id]
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
    assert await store.expire() == []
    await finish(store, claimed)
    assert await status_of(store, id) is TaskStatus.DONE


async def test_a_running_task_that_is_put_back_after_its_expiry_ends(store, clock):
    id = await put_one(store, expires=seconds(30))
    claimed = await claim_one(store)
    await clock.advance(31)
    await store.expire()
    await finish(store, claimed, HANDED_BACK)
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_a_waiting_task_expires(store, clock):
    id = await put_one(store, expires=seconds(30))
    await finish(store, await claim_one(store), waiting())
    await clock.advance(31)
    assert [one.task for one in await store.expire()] == [id]
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_one_pass_is_bounded(store, clock):
    await put(store, 5, expires=seconds(1))
    await clock.advance(2)
    assert [len(await store.expire(2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_running_tasks_do_not_hide_those_that_have_expired(store, clock):
    await put(store, 3, expires=seconds(10))
    await claim(store)
    late = await put_one(store, expires=seconds(11))
    await clock.advance(12)
    assert sum([len(await store.expire(1)) for _ in range(5)]) == 1
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


# ── who is told of it: each dead letter by expiry is answered once, by one sweep ─────────────────


async def test_the_answer_says_what_ended(store, clock):
    id = await put_one(store, "mail:send", queue="mail", expires=seconds(30))
    await clock.advance(31)
    assert await store.expire() == [Expired(id, "mail:send", "mail")]
    await clock.advance(60)
    assert await store.expire() == []


async def test_what_a_claim_found_to_be_too_late_is_answered_by_the_next_sweep(store, clock):
    id = await put_one(store, expires=seconds(30), delay=seconds(20))
    await clock.advance(31)
    assert await claim(store) == []
    assert [one.task for one in await store.expire()] == [id]
    assert await store.expire() == []


async def test_what_was_put_back_too_late_is_answered_by_the_next_sweep(store, clock):
    id = await put_one(store, expires=seconds(30))
    claimed = await claim_one(store)
    await clock.advance(31)
    assert await store.expire() == []
    await finish(store, claimed, HANDED_BACK)
    await clock.advance(11)
    assert [one.task for one in await store.expire()] == [id]
    assert await store.expire() == []


async def test_what_its_worker_told_of_is_not_answered_again(store, clock):
    await put(store, 2, expires=seconds(30))
    first, second = await claim(store)
    await clock.advance(31)
    await finish(store, first, Settlement(verdict=Verdict.FAILED, failure=EXPIRED))
    await finish(store, second)
    await clock.advance(11)
    assert await store.expire() == []


async def test_what_recovery_told_of_is_not_answered_again(store, clock):
    await put_one(store, expires=seconds(30))
    await claim_one(store, lease=seconds(10))
    await clock.advance(31)
    (recovered,) = await store.recover()
    assert recovered.status is TaskStatus.FAILED
    await clock.advance(11)
    assert await store.expire() == []


async def test_what_expires_while_it_is_recovered_is_told_by_recovery_alone(
    store, clock, monkeypatch
):
    await put_one(store, expires=seconds(30))
    await claim_one(store, lease=seconds(10))
    await clock.advance(11)
    call = store._call

    async def slow(verb, **asked):
        rows = await call(verb, **asked)
        if verb == "lapsed":
            await clock.advance(30)
        return rows

    monkeypatch.setattr(store, "_call", slow)
    (recovered,) = await store.recover()
    assert recovered.status is TaskStatus.FAILED
    await clock.advance(11)
    assert await store.expire() == []


async def test_what_was_cancelled_before_its_time_was_over_is_not_answered(store, clock):
    id = await put_one(store, expires=seconds(30))
    await store.cancel([id])
    await clock.advance(31)
    assert await store.expire() == []


@pytest.mark.parametrize("replayed", [True, False])
async def test_what_is_replayed_as_soon_as_it_expired_stays_and_so_do_its_children(
    store, clock, monkeypatch, replayed
):
    """As `upkeep` sees to it: somebody may come between the two. The next life takes them up."""
    parent = await put_one(store, expires=seconds(30))
    await finish(store, await claim_one(store), waiting())
    child = await put_one(store, parent=parent)
    expire = store.expire

    async def expire_and_be_overtaken(batch):
        expired = await expire(batch)
        if replayed:
            await store.retry([one.task for one in expired])
        return expired

    monkeypatch.setattr(store, "expire", expire_and_be_overtaken)
    settings = Upkeeping(recovery_interval=MINUTE)
    duties = {each.name: each for each in chores(store, Observer(), settings, lambda: None)}
    await clock.advance(31)
    assert await duties["expiry"].sweep() == 1
    if replayed:
        assert await status_of(store, child) is TaskStatus.PENDING
        assert await status_of(store, parent) is TaskStatus.PENDING
    else:
        assert await status_of(store, child) is TaskStatus.CANCELLED
        assert await status_of(store, parent) is TaskStatus.FAILED
    assert not (await store.get(parent)).cancel_requested
