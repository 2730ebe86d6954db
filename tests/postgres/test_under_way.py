"""What a statement that is still under way means for the others."""

import asyncio

import pytest

from holdfast.ids import new_grant, new_id
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Draft
from tests.contract.acts import MINUTE, WORKER, put, seconds

RECORD_CHILD = f"select holdfast.record_child({', '.join(f'${n}' for n in range(1, 18))})"
CLAIM = "select ids from holdfast.claim(7, $1, $2, null, 10, 60, null, false)"
WAITS = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


async def until(conn, question: str) -> None:
    """Until the database answers with a number above zero."""
    while True:
        if await conn.fetchval(question):
            return
        await asyncio.sleep(0.005)


async def test_a_new_limit_counts_what_a_claim_under_way_has_taken(store, conn):
    await put(store, 30)
    lanes = (await store.lanes()).lanes
    claiming = conn.transaction()
    await claiming.start()
    assert len(await conn.fetchval(CLAIM, new_grant(), list(lanes))) == 10
    limiting = asyncio.create_task(store.limit("type", "shop.orders:charge", Limit(max_running=5)))
    await until(conn, WAITS)
    await claiming.commit()
    await limiting
    answer = await store.claim(worker=WORKER, lanes=list(lanes), want=10, lease=MINUTE)
    assert (answer.tasks, answer.full) == ([], True)
    assert await conn.fetchval("select running from holdfast.gate") == 10


async def test_a_new_limit_per_key_holds_for_what_was_being_let_in(store, conn):
    await store.enqueue([Draft(id=new_id(), type="keyed", concurrency_key="k") for _ in range(8)])
    lanes = (await store.lanes()).lanes
    claiming = conn.transaction()
    await claiming.start()
    assert await conn.fetchval(CLAIM, new_grant(), list(lanes))
    limiting = asyncio.create_task(store.limit("type", "keyed", Limit(max_per_key=1)))
    await until(conn, WAITS)
    await claiming.rollback()
    await limiting
    answer = await store.claim(worker=WORKER, lanes=list(lanes), want=10, lease=MINUTE)
    assert len(answer.tasks) == 1


async def test_recovery_passes_by_a_lease_that_somebody_holds_just_now(store, conn):
    await put(store, 3)
    lanes = (await store.lanes()).lanes
    answer = await store.claim(worker=WORKER, lanes=list(lanes), want=3, lease=seconds(0.001))
    held = answer.tasks[0].lease.task
    await until(conn, "select count(*) = 3 from holdfast.stale_leases")
    async with conn.transaction():
        await conn.execute("select from holdfast.lease where id = $1 for update", held)
        recovered = await asyncio.wait_for(store.recover(), 60)
        assert {r.lease.task for r in recovered} == {t.lease.task for t in answer.tasks[1:]}
    assert [r.lease.task for r in await store.recover()] == [held]


async def test_a_claim_of_keyed_tasks_is_durable_and_one_of_plain_tasks_need_not_be(store, conn):
    await store.enqueue([Draft(id=new_id(), type="keyed", concurrency_key="k")])
    await store.enqueue([Draft(id=new_id(), type="plain")])
    lanes = (await store.lanes()).lanes
    commits = {}
    for id, lane in lanes.items():
        async with conn.transaction():
            assert await conn.fetchval(CLAIM, new_grant(), [id])
            commits[lane.type] = await conn.fetchval("show synchronous_commit")
    assert commits == {"keyed": "on", "plain": "off"}


@pytest.mark.parametrize(("durable", "commits"), [(True, "on"), (False, "off")])
async def test_a_child_that_is_taken_at_once_waits_for_the_disk_unless_it_need_not(
    store, conn, durable, commits
):
    await put(store, 1)
    lanes = list((await store.lanes()).lanes)
    answer = await store.claim(worker=WORKER, lanes=lanes, want=1, lease=MINUTE)
    lease = answer.tasks[0].lease
    async with conn.transaction():
        parent = (lease.task, lease.grant, [0], ["child"], ["work"], [b"{}"])
        child = (new_id(), lanes[0], 0, b"null", None, None, None, WORKER, new_grant(), 60.0)
        assert await conn.fetchval(RECORD_CHILD, *parent, *child, durable)
        assert await conn.fetchval("show synchronous_commit") == commits


async def test_nudges_of_other_lanes_do_not_hold_up_a_claim(store, conn):
    others = [Draft(id=new_id(), type="a", concurrency_key=f"k{n}") for n in range(2000)]
    await store.enqueue(others)
    mine = Draft(id=new_id(), type="b", concurrency_key="k")
    await store.enqueue([mine])
    lanes = (await store.lanes()).lanes
    served = [id for id, lane in lanes.items() if lane.type == "b"]
    answer = await store.claim(worker=WORKER, lanes=served, want=1, lease=MINUTE)
    assert [task.lease.task for task in answer.tasks] == [mine.id]
