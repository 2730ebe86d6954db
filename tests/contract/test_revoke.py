"""Revoke: a lease is withdrawn although its holder renews it; one attempt only, by its fence."""

import asyncio

import pytest

from holdfast.errors import LeaseLost
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import DONE, MINUTE, claim_one, finish, put_one, seconds, status_of


async def test_a_withdrawn_lease_is_recovered_at_once(store):
    id = await put_one(store)
    held = await claim_one(store)
    assert await store.revoke(id, held.lease.fence)
    (recovered,) = await store.recover()
    assert (recovered.lease.task, recovered.status) == (id, TaskStatus.PENDING)
    again = await claim_one(store)
    assert (again.lease.task, again.tries, again.lease.fence) == (id, 2, 2)


async def test_whoever_held_it_can_write_no_more(store):
    id = await put_one(store)
    held = await claim_one(store)
    await store.revoke(id, held.lease.fence)
    assert (await store.renew([held.lease], MINUTE)).lost == {id}
    assert await store.settle([(held.lease, DONE)]) == {id}
    with pytest.raises(LeaseLost):
        await store.progress(held.lease, 50)
    assert len(await store.recover()) == 1  # the renewal did not bring it back
    await finish(store, await claim_one(store))


@pytest.mark.parametrize("fence", [0, 1, 3])
async def test_another_attempt_than_the_one_named_is_left_alone(store, clock, dump, fence):
    id = await put_one(store)
    await claim_one(store)
    await clock.advance(61)
    await store.recover()
    held = await claim_one(store)
    before = await dump()
    assert not await store.revoke(id, fence)
    assert await dump() == before
    await finish(store, held)


async def test_what_has_ended_is_left_alone(store, dump):
    id = await put_one(store)
    held = await claim_one(store)
    await finish(store, held)
    before = await dump()
    assert not await store.revoke(id, held.lease.fence)
    assert await dump() == before
    assert await status_of(store, id) is TaskStatus.DONE


async def test_asking_again_after_a_lost_answer_is_harmless(store):
    id = await put_one(store)
    held = await claim_one(store)
    assert await store.revoke(id, held.lease.fence)
    assert await store.revoke(id, held.lease.fence)
    assert len(await store.recover()) == 1
    assert not await store.revoke(id, held.lease.fence)


async def test_a_settle_and_a_withdrawal_at_once_leave_one_ending(store):
    for _ in range(20):
        id = await put_one(store)
        held = await claim_one(store)
        refused, withdrawn = await asyncio.gather(
            store.settle([(held.lease, DONE)]), store.revoke(id, held.lease.fence)
        )
        assert withdrawn is bool(refused)
        if withdrawn:
            await store.recover()
            await finish(store, await claim_one(store))


async def test_old_attempts_are_found_by_how_long_they_run(store, clock):
    old = await put_one(store)
    held = await claim_one(store)
    await clock.advance(30)
    await put_one(store)
    await claim_one(store)
    await clock.advance(31)
    await store.renew([held.lease], MINUTE)
    (found,) = await store.leases(older_than=seconds(60))
    assert found.task == old
    assert found.lease_timeout - seconds(found.seconds_left) - found.started_at == seconds(61)
    assert len(await store.leases(older_than=seconds(30))) == 2
    assert await store.leases(older_than=seconds(62)) == []


async def test_turns_long_past_are_forgotten_with_the_rest(store, clock, peek):
    await store.take_turn("once", seconds(60))
    await clock.advance(3 * 86_400)
    await store.take_turn("now", seconds(60))
    await store.cleanup(seconds(86_400))
    assert await peek("select name from chore") == [("now",)]
