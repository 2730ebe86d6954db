"""A task's completion and rows of the handler's own: together, or not at all."""

import pytest

from holdfast.errors import InvalidInput, LeaseLost
from tests.contract.acts import (
    DONE,
    MINUTE,
    OTHER,
    claim,
    claim_one,
    draft,
    finish,
    put_one,
    retry,
    status_of,
    waiting,
)


async def bill_and_settle(store, bill, *leases, fails=False):
    async with store.transaction() as conn:
        await conn.execute(f"insert into {bill} values (7)")
        await store.settle([(lease, DONE) for lease in leases], conn=conn)
        if fails:
            raise RuntimeError("no")


async def test_rows_and_completion_are_written_together(store, keeper, bill):
    id = await put_one(store)
    held = await claim_one(store)
    await bill_and_settle(store, bill, held.lease)
    assert await status_of(store, id) == "done"
    assert await keeper.peek(f"select id from {bill}") == [(7,)]


async def test_an_error_undoes_both_and_the_lease_stays_valid(store, keeper, bill):
    await put_one(store)
    held = await claim_one(store)
    with pytest.raises(RuntimeError, match="no"):
        await bill_and_settle(store, bill, held.lease, fails=True)
    assert await keeper.peek(f"select id from {bill}") == []
    assert (await store.renew([held.lease], MINUTE)).lost == frozenset()
    await finish(store, held)


async def test_a_lost_lease_undoes_both_and_is_on_record(store, keeper, clock, bill):
    id = await put_one(store)
    held = await claim_one(store)
    await clock.advance(61)
    await store.recover()
    with pytest.raises(LeaseLost):
        await bill_and_settle(store, bill, held.lease)
    assert await keeper.peek(f"select id from {bill}") == []
    assert await status_of(store, id) == "pending"
    assert [e.verb for e in await store.events() if e.kind == "refused"] == ["settle"]
    await finish(store, await claim_one(store, worker=OTHER))


async def test_one_lost_lease_undoes_the_whole_batch(store, clock, bill):
    await put_one(store)
    late = await claim_one(store)
    await clock.advance(61)
    await store.recover()
    await finish(store, await claim_one(store, worker=OTHER))
    id = await put_one(store)
    held = await claim_one(store)
    with pytest.raises(LeaseLost):
        await bill_and_settle(store, bill, held.lease, late.lease)
    assert await status_of(store, id) == "running"
    await finish(store, held)


async def test_a_completion_is_not_written_twice(store, keeper, bill):
    await put_one(store)
    held = await claim_one(store)
    await bill_and_settle(store, bill, held.lease)
    with pytest.raises(LeaseLost):
        await bill_and_settle(store, bill, held.lease)
    assert await keeper.peek(f"select id from {bill}") == [(7,)]
    assert [e.kind for e in await store.events()] == ["done"]


async def test_tasks_that_follow_come_with_the_completion(store, keeper):
    await put_one(store)
    held = await claim_one(store)
    async with store.transaction() as conn:
        (next_id,) = await store.enqueue([draft()], conn=conn)
        await store.settle([(held.lease, DONE)], conn=conn)
    assert [c.lease.task for c in await claim(store)] == [next_id]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_parent_is_woken_after_the_commit(store, keeper, by_hand):
    parent = await put_one(store)
    held = await claim_one(store)
    child = await put_one(store, parent=parent)
    await finish(store, held, waiting())
    (its,) = await claim(store)
    assert its.lease.task == child
    if by_hand:
        async with keeper.transaction(keep=True) as conn:
            wakes = await store.settle([(its.lease, DONE)], conn=conn)
        assert wakes == {parent}
        assert await claim(store) == []
        await store.wake_up(list(wakes))
    else:
        async with store.transaction() as conn:
            await store.settle([(its.lease, DONE)], conn=conn)
    assert [c.lease.task for c in await claim(store)] == [parent]


async def test_a_retry_may_be_written_with_rows_too(store, keeper, bill):
    id = await put_one(store)
    held = await claim_one(store)
    async with store.transaction() as conn:
        await conn.execute(f"insert into {bill} values (7)")
        await store.settle([(held.lease, retry())], conn=conn)
    assert await status_of(store, id) == "pending"
    assert await keeper.peek(f"select id from {bill}") == [(7,)]


async def test_a_settle_on_anything_else_is_refused(store, keeper):
    await put_one(store)
    held = await claim_one(store)
    with pytest.raises(InvalidInput, match="conn="):
        await store.settle([(held.lease, DONE)], conn=object())
    await finish(store, held)
