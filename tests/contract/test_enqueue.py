"""Enqueue: accepted or not, all of it or nothing, and it comes back as it was asked for."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.answers import TaskFilter
from holdfast.errors import InvalidInput, KeyConflict, UnknownTask
from holdfast.ids import new_id
from holdfast.stores import prepared
from holdfast.tasks.lane import Serving
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import Draft, TaskStatus
from tests.contract.acts import (
    DONE,
    TYPE,
    ask,
    claim,
    claim_one,
    draft,
    ids_of,
    put,
    put_one,
    seconds,
    status_of,
)


async def test_many_tasks_go_in_one_call_and_are_answered_in_their_order(store):
    drafts = [draft(f"job:{n % 7}", priority=n % 3) for n in range(700)]
    assert await store.enqueue(drafts) == [d.id for d in drafts]
    assert len(await claim(store, 1000)) == 700


async def test_a_bulk_of_tasks_keeps_what_each_of_them_asked_for(store):
    parent = await put_one(store, queue="parents")
    policy = RetryPolicy(max_attempts=5)
    drafts = [draft(payload=str(n).encode(), priority=n % 3) for n in range(1200)]
    drafts[7] = draft(max_tries=9, queue="other", parent=parent, priority=8)
    drafts[9] = draft(retry=policy, tenant="acme")
    assert await store.enqueue(drafts) == [d.id for d in drafts]
    seven, nine = await store.get(drafts[7].id), await store.get(drafts[9].id)
    assert (seven.max_tries, seven.queue, seven.parent, seven.priority) == (9, "other", parent, 8)
    assert (nine.max_tries, nine.tenant, nine.parent) == (5, "acme", None)
    claimed = {c.lease.task: c for c in await claim(store, 2000)}
    assert {d.id: d.payload for d in drafts}.items() <= {
        id: c.payload for id, c in claimed.items()
    }.items()
    assert claimed[drafts[9].id].retry == policy


async def test_a_bulk_of_tasks_is_accepted_whole_or_not_at_all(store, dump):
    used = draft()
    await store.enqueue([used])
    drafts = [draft() for _ in range(1200)]
    before = await dump()
    with pytest.raises(InvalidInput, match="used before"):
        await store.enqueue([*drafts, used])
    assert await dump() == before
    assert await store.enqueue(drafts) == [d.id for d in drafts]
    before = await dump()
    assert await store.enqueue(drafts) == [d.id for d in drafts]
    assert await dump() == before


async def test_nothing_to_enqueue_is_nothing_done(store, dump):
    before = await dump()
    assert await store.enqueue([]) == []
    assert await dump() == before


async def test_one_call_takes_a_bounded_number_of_tasks(store, dump):
    before = await dump()
    with pytest.raises(InvalidInput, match="at most 100,000 tasks go in one call"):
        await store.enqueue([draft()] * 100_001)
    assert await dump() == before


async def test_one_call_takes_a_bounded_number_of_bytes(store, dump, monkeypatch):
    """More than PostgreSQL takes at once closed the connection, which says nothing."""
    monkeypatch.setattr(prepared, "_MOST_BYTES", 1000)
    drafts = [draft(payload=b"[%d]" % 10**97) for _ in range(10)]
    assert await store.enqueue(drafts) == [d.id for d in drafts]
    before = await dump()
    too_many = [draft(payload=b"[%d]" % 10**97) for _ in range(11)]
    with pytest.raises(InvalidInput, match=r"at most 1,000 bytes .* got 1,100 in 11 tasks; send"):
        await store.enqueue(too_many)
    with pytest.raises(InvalidInput, match=r"at most 1,000 bytes"):
        await store.prepare(too_many)
    assert await dump() == before


async def test_a_task_is_shown_as_it_was_asked_for(store):
    parent = await put_one(store)
    asked = draft(
        queue="vip",
        version="2",
        tags=("billing", "eu"),
        requires=("eu", "gpu"),
        tenant="acme",
        priority=7,
        max_tries=4,
        key="order-7",
        parent=parent,
    )
    await store.enqueue([asked])
    task = await store.get(asked.id)
    assert (task.type, task.queue, task.version, task.tenant) == (TYPE, "vip", "2", "acme")
    assert (task.tags, task.requires) == (("billing", "eu"), ("eu", "gpu"))
    assert (task.priority, task.max_tries, task.key, task.parent) == (7, 4, "order-7", parent)
    assert (task.status, task.try_count, task.cancel_requested) == (TaskStatus.PENDING, 0, False)
    assert (task.locked_by, task.started_at, task.finished_at) == (None, None, None)
    assert task.run_at == task.created_at


async def test_a_task_is_claimed_as_it_was_asked_for(store):
    policy = RetryPolicy(initial_delay=5.0, max_delay=50.0, jitter=0.0)
    parent = await put_one(store, queue="elsewhere")
    asked = draft(
        payload=b'{"args":[1]}', queue="vip", priority=-3, max_tries=4, retry=policy, parent=parent
    )
    await store.enqueue([asked])
    claimed = await claim_one(store, serving=_only("vip"))
    assert claimed.lane == asked.lane
    assert (claimed.payload, claimed.priority, claimed.retry) == (asked.payload, -3, policy)
    assert (claimed.max_tries, claimed.tries, claimed.parent) == (4, 1, parent)
    assert (claimed.cancel_requested, claimed.expired, claimed.alone) == (False, False, False)
    assert claimed.lease.task == asked.id
    assert claimed.lease.fence == 1


async def test_a_payload_comes_back_byte_for_byte(store):
    payload = bytes(range(256)) * 4 + "ünï\u2028".encode()
    await put_one(store, payload=payload)
    assert (await claim_one(store)).payload == payload


async def test_the_attempts_of_a_policy_are_the_tries_of_its_task(store):
    first = await put_one(store, retry=RetryPolicy(max_attempts=5))
    told = await put_one(store, retry=RetryPolicy(max_attempts=5), max_tries=2)
    silent = await put_one(store)
    assert [(await store.get(id)).max_tries for id in (first, told, silent)] == [5, 2, None]


async def test_a_delayed_task_is_not_taken_before_its_time(store, clock):
    id = await put_one(store, delay=seconds(60))
    task = await store.get(id)
    assert task.status is TaskStatus.PENDING
    assert task.run_at - task.created_at == timedelta(seconds=60)
    await clock.advance(59.9)
    assert await claim(store) == []
    await clock.advance(0.2)
    assert ids_of(await claim(store)) == [id]


async def test_a_task_runs_at_the_time_it_was_given(store, clock):
    now = (await store.get(await put_one(store, queue="other"))).created_at
    id = await put_one(store, run_at=now + timedelta(minutes=5))
    assert (await store.get(id)).run_at == now + timedelta(minutes=5)
    await clock.advance(299)
    assert await claim(store, serving=_only("default")) == []
    await clock.advance(2)
    assert ids_of(await claim(store, serving=_only("default"))) == [id]


async def test_a_time_that_has_passed_means_now(store):
    id = await put_one(store, run_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert ids_of(await claim(store)) == [id]


async def test_what_would_expire_before_its_time_to_run_is_refused_by_the_stores_clock(
    store, keeper, clock
):
    at = await store.now() + timedelta(hours=1)
    for short in (timedelta(0), timedelta(minutes=30), timedelta(minutes=59)):
        with pytest.raises(InvalidInput, match="before its run_at of"):
            await put(store, 2, run_at=at, expires=short)
        with pytest.raises(InvalidInput, match="give a longer one"):
            await store.prepare([draft(), draft(run_at=at, expires=short)])
    assert (await store.list_tasks(TaskFilter())).tasks == []
    await put_one(store, run_at=at, expires=timedelta(minutes=61))
    await clock.advance(3000)
    await put_one(store, run_at=at, expires=timedelta(minutes=11))
    await put_one(store, run_at=await store.now(), expires=timedelta(0))


async def test_no_delay_at_all_means_now(store):
    ids = await store.enqueue([draft(delay=timedelta(0)), draft(delay=seconds(9)), draft()])
    assert ids_of(await claim(store)) == [ids[0], ids[2]]


@pytest.mark.parametrize("priority", [-32_000, 0, 32_000])
async def test_the_whole_range_of_priorities_is_kept(store, priority):
    id = await put_one(store, priority=priority)
    assert (await store.get(id)).priority == priority
    assert (await claim_one(store)).priority == priority


async def test_what_was_not_started_in_time_is_claimed_as_expired(store, clock):
    await put_one(store, expires=seconds(30))
    await clock.advance(31)
    assert (await claim_one(store)).expired is True


async def test_callers_that_come_together_get_their_own_ids(store):
    calls = [[draft() for _ in range(n % 4 + 1)] for n in range(60)]
    answers = await asyncio.gather(*(store.enqueue(drafts) for drafts in calls))
    assert answers == [[d.id for d in drafts] for drafts in calls]
    assert sorted(ids_of(await claim(store, 1000))) == sorted(id for ids in answers for id in ids)


async def test_one_callers_fault_is_not_anothers(store):
    await put_one(store, key="taken", payload=b"1")
    answers = await asyncio.gather(
        store.enqueue([draft()]),
        store.enqueue([draft(key="taken", payload=b"2"), draft()]),
        store.enqueue([draft()]),
        return_exceptions=True,
    )
    assert [type(a) for a in answers] == [list, KeyConflict, list]
    assert len(await claim(store)) == 3


# ── asked again ──────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_is_repeated_after_a_lost_answer_is_written_once(store, dump):
    drafts = [draft(), draft(delay=seconds(5)), draft(concurrency_key="k")]
    first = await store.enqueue(drafts)
    before = await dump()
    assert await store.enqueue(drafts) == first
    assert await dump() == before


async def test_a_repeated_call_is_answered_the_same_after_its_task_has_run(store):
    drafts = [draft()]
    await store.enqueue(drafts)
    claimed = await claim_one(store)
    await store.settle([(claimed.lease, DONE)])
    assert await store.enqueue(drafts) == [drafts[0].id]
    assert await claim(store) == []


async def test_an_id_that_other_work_has_used_is_refused(store, dump):
    used = draft()
    await store.enqueue([used])
    before = await dump()
    with pytest.raises(InvalidInput, match="used before"):
        await store.enqueue([draft(), Draft(id=used.id, type=TYPE, payload=b"[9]")])
    assert await dump() == before


async def test_an_id_twice_in_one_call_is_refused(store, dump):
    id = new_id()
    await put_one(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="make a new id for each task"):
        await store.enqueue([Draft(id=id, type=TYPE), Draft(id=id, type=TYPE)])
    assert await dump() == before


# ── in the caller's transaction ──────────────────────────────────────────────────────────────


async def test_a_task_is_accepted_when_the_callers_transaction_commits(store, keeper):
    drafts = [draft(), draft(delay=seconds(60)), draft(concurrency_key="k"), draft(key="k")]
    async with keeper.transaction(keep=True) as conn:
        assert await store.enqueue(drafts, conn=conn) == [d.id for d in drafts]
    assert {d.id for d in drafts} == {
        t.id for t in (await store.list_tasks(TaskFilter(status=TaskStatus.PENDING))).tasks
    }
    assert len(await claim(store)) == 3


async def test_nothing_of_a_rolled_back_transaction_is_left(store, keeper):
    asked = draft(key="order-7", expires=seconds(9), concurrency_key="k")
    async with keeper.transaction(keep=False) as conn:
        await store.enqueue([asked, draft(delay=seconds(1))], conn=conn)
    with pytest.raises(UnknownTask):
        await store.get(asked.id)
    left = {t for t, rows in (await keeper.dump()).items() if keeper.shown(asked.id) in str(rows)}
    assert left == set()
    again = await put_one(store, key="order-7", payload=b"[2]")
    assert ids_of(await claim(store)) == [again]


async def test_a_lane_that_a_rolled_back_transaction_asked_for_can_be_used(store, keeper):
    async with keeper.transaction(keep=False) as conn:
        await store.enqueue([draft(queue="brand-new")], conn=conn)
    id = await put_one(store, queue="brand-new")
    other_process = keeper.store()
    assert ids_of(await claim(other_process)) == [id]


async def test_a_key_conflict_inside_a_transaction_leaves_the_transaction_usable(store, keeper):
    await put_one(store, key="taken", payload=b"1")
    async with keeper.transaction(keep=True) as conn:
        with pytest.raises(KeyConflict):
            await store.enqueue([draft(key="taken", payload=b"2")], conn=conn)
        id = (await store.enqueue([draft()], conn=conn))[0]
    assert await status_of(store, id) is TaskStatus.PENDING


async def test_a_connection_of_another_kind_is_refused(store, dump):
    before = await dump()
    with pytest.raises(InvalidInput, match="conn="):
        await store.enqueue([draft(type="known:one")], conn=object())
    after = await dump()
    assert after.get("task") == before.get("task")


async def test_waiting_work_is_told_apart_from_none(store):
    await put(store, 2, delay=seconds(40))
    answer = await ask(store)
    assert answer.tasks == []
    assert answer.next_due == pytest.approx(40, abs=0.01)


def _only(queue: str) -> Serving:
    return Serving(queues=frozenset({queue}))
