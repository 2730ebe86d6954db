"""Idempotency keys: one task for one (tenant, key), whoever asks and however often."""

import asyncio
from datetime import timedelta

import pytest

from holdfast.errors import KeyConflict
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    claim,
    claim_one,
    draft,
    finish,
    put,
    put_one,
    retry,
    seconds,
    status_of,
)


async def test_the_same_key_is_answered_with_the_same_id(store, dump):
    first = await put_one(store, key="order-7", payload=b"[7]")
    before = await dump()
    assert await put_one(store, key="order-7", payload=b"[7]") == first
    assert await dump() == before


async def test_a_key_holds_also_for_a_delayed_task(store):
    first = await put_one(store, key="order-7", delay=seconds(60))
    assert await put_one(store, key="order-7") == first
    assert await claim(store) == []


@pytest.mark.parametrize("ending", [DONE, FAILED, CANCELLED], ids=lambda s: s.verdict.value)
async def test_a_key_holds_as_long_as_its_task_is_kept(store, ending):
    first = await put_one(store, key="order-7")
    await finish(store, await claim_one(store), ending)
    assert await put_one(store, key="order-7") == first
    assert await claim(store) == []


async def test_a_key_is_free_again_when_its_task_was_forgotten(store, clock):
    first = await put_one(store, key="order-7")
    await finish(store, await claim_one(store))
    await clock.advance(100)
    assert await store.cleanup(seconds(50)) == 1
    second = await put_one(store, key="order-7", payload=b"[8]")
    assert second != first
    assert await status_of(store, second) is TaskStatus.PENDING


@pytest.mark.parametrize(
    "other", [{"payload": b"[8]"}, {"type": "shop.orders:refund"}], ids=["payload", "type"]
)
async def test_a_key_that_belongs_to_other_work_is_refused(store, dump, other):
    first = await put_one(store, key="order-7", payload=b"[7]")
    await put_one(store, "shop.orders:refund", queue="known")
    await put_one(store, "shop.orders:refund")
    before = await dump()
    with pytest.raises(KeyConflict, match="order-7") as refused:
        await put_one(store, **{"key": "order-7", "payload": b"[7]", **other})
    assert (refused.value.existing, refused.value.tenant) == (first, "default")
    assert await dump() == before


async def test_one_conflict_refuses_the_whole_call(store, dump):
    await put_one(store, key="taken", payload=b"[1]")
    before = await dump()
    with pytest.raises(KeyConflict):
        await store.enqueue(
            [draft(), draft(key="new"), draft(key="taken", payload=b"[2]"), draft(key="late")]
        )
    assert await dump() == before
    await put_one(store, key="new", payload=b"[3]")


async def test_two_equal_keys_in_one_call_are_one_task(store):
    ids = await put(store, 3, key="order-7")
    assert len(set(ids)) == 1
    assert len(await claim(store)) == 1


async def test_two_equal_keys_for_different_work_in_one_call_are_refused(store, dump):
    await put_one(store)
    before = await dump()
    with pytest.raises(KeyConflict):
        await store.enqueue([draft(key="k", payload=b"[1]"), draft(key="k", payload=b"[2]")])
    assert await dump() == before


async def test_keys_are_a_tenants_own(store):
    ids = [await put_one(store, key="order-7", tenant=t, payload=t.encode()) for t in ("a", "b")]
    assert len(set(ids)) == 2
    assert await put_one(store, key="order-7", tenant="a", payload=b"a") == ids[0]


async def test_a_known_key_does_not_keep_out_the_rest_of_its_call(store):
    first = await put_one(store, key="order-7")
    fresh = draft()
    assert await store.enqueue([draft(key="order-7"), fresh]) == [first, fresh.id]
    assert len(await claim(store)) == 2


async def test_a_repeated_call_with_a_key_of_another_task_is_answered_the_same(store, dump):
    await put_one(store, key="order-7")
    drafts = [draft(), draft(key="order-7"), draft(key="order-8")]
    first = await store.enqueue(drafts)
    before = await dump()
    assert await store.enqueue(drafts) == first
    assert await dump() == before


async def test_callers_at_the_same_moment_all_get_the_same_task(store, keeper):
    stores = [store, *(keeper.store() for _ in range(4))]
    answers = await asyncio.gather(
        *(put_one(stores[n % 5], key=f"order-{n % 2}") for n in range(40))
    )
    assert len(set(answers)) == 2
    assert len(await claim(store)) == 2


# ── while pending ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", [DONE, FAILED, CANCELLED], ids=lambda s: s.verdict.value)
async def test_a_key_while_pending_is_free_when_its_task_has_ended(store, ending):
    first = await put_one(store, key="sync", unique="while_pending")
    assert await put_one(store, key="sync", unique="while_pending") == first
    claimed = await claim_one(store)
    assert await put_one(store, key="sync", unique="while_pending") == first
    await finish(store, claimed, ending)
    second = await put_one(store, key="sync", unique="while_pending", payload=b"[2]")
    assert second != first
    assert await put_one(store, key="sync", unique="while_pending", payload=b"[2]") == second
    assert [c.lease.task for c in await claim(store)] == [second]


async def test_a_key_while_pending_holds_during_a_retry(store, clock):
    first = await put_one(store, key="sync", unique="while_pending")
    await finish(store, await claim_one(store), retry(60))
    assert await put_one(store, key="sync", unique="while_pending") == first


async def test_a_conflict_leaves_a_key_while_pending_with_its_former_task(store, dump):
    await put_one(store, key="sync", unique="while_pending")
    await put_one(store, key="taken", payload=b"[1]")
    for claimed in await claim(store):
        await finish(store, claimed)
    before = await dump()
    with pytest.raises(KeyConflict):
        await store.enqueue(
            [draft(key="sync", unique="while_pending"), draft(key="taken", payload=b"[2]")]
        )
    assert await dump() == before


async def test_a_key_taken_over_lives_as_long_as_its_new_owner_asked_for(store):
    await put_one(store, key="sync", unique="while_pending")
    await finish(store, await claim_one(store))
    second = await put_one(store, key="sync", unique="while_kept")
    await finish(store, await claim_one(store))
    assert await put_one(store, key="sync", unique="while_pending") == second


async def test_a_task_whose_key_went_to_a_younger_one_gets_no_new_life(store, dump):
    first = await put_one(store, key="sync", unique="while_pending")
    await finish(store, await claim_one(store), FAILED)
    second = await put_one(store, key="sync", unique="while_pending")
    before = await dump()
    assert await store.retry([first]) == frozenset()
    assert await dump() == before
    assert await status_of(store, second) is TaskStatus.PENDING


# ── while fresh ──────────────────────────────────────────────────────────────────────────────


async def test_a_key_while_fresh_is_held_until_its_result_is_stale(store, clock):
    hour = timedelta(hours=1)
    first = await put_one(store, key="rate", fresh=hour)
    assert await put_one(store, key="rate", fresh=hour) == first
    claimed = await claim_one(store)
    await clock.advance(7200)  # however long it runs
    assert await put_one(store, key="rate", fresh=hour) == first
    await finish(store, claimed)
    await clock.advance(59 * 60)
    assert await put_one(store, key="rate", fresh=hour) == first
    await clock.advance(120)
    second = await put_one(store, key="rate", fresh=hour)
    assert second != first
    assert await put_one(store, key="rate", fresh=hour) == second


@pytest.mark.parametrize("ending", [FAILED, CANCELLED], ids=lambda s: s.verdict.value)
async def test_a_key_while_fresh_is_free_when_there_is_no_result(store, ending):
    first = await put_one(store, key="rate", fresh=timedelta(days=36_500))
    await finish(store, await claim_one(store), ending)
    assert await put_one(store, key="rate", fresh=timedelta(days=36_500)) != first


async def test_a_stale_key_goes_to_one_of_all_who_come_at_once(store, clock):
    hour = timedelta(hours=1)
    first = await put_one(store, key="rate", fresh=hour)
    await finish(store, await claim_one(store))
    await clock.advance(7200)
    answers = await asyncio.gather(*(put_one(store, key="rate", fresh=hour) for _ in range(20)))
    assert len(set(answers)) == 1
    assert answers[0] != first
