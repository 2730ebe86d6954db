"""Claims and records that meet others at work, which only PostgreSQL has."""

import asyncio
from typing import Any

import pytest

from holdfast.answers import Step, Taking
from holdfast.errors import LeaseLost
from holdfast.ids import new_grant
from holdfast.stores.prepared import by_itself
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Lease
from tests.contract.acts import (
    DONE,
    MINUTE,
    TYPE,
    WORKER,
    ask,
    claim,
    claim_one,
    draft,
    ids_of,
    put,
    put_one,
)
from tests.contract.rivals import rival

ONLY = "postgres"


async def _hold(conn, keeper, table: str) -> None:
    await conn.execute(f"select from {keeper.schema}.{table} for update")


async def test_a_gate_that_another_claim_holds_is_contended_and_not_full(store, keeper):
    ids = await put(store, 3)
    await store.limit("type", TYPE, Limit(max_running=5))
    async with keeper.transaction(keep=True) as conn:
        await _hold(conn, keeper, "gate")
        answer = await ask(store)
        assert (answer.tasks, answer.full) == ([], False)
        assert answer.contended
        waiting = asyncio.create_task(ask(store, after=answer.contended))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
    again = await waiting
    assert ids_of(again.tasks) == ids


async def test_tasks_that_another_claim_is_taking_are_contended(store, keeper):
    ids = await put(store, 3)
    async with keeper.transaction(keep=True) as conn:
        await _hold(conn, keeper, "ready")
        answer = await ask(store)
        assert (answer.tasks, answer.full, answer.contended) == ([], False, 0)
    assert ids_of(await claim(store)) == ids


async def test_the_only_task_which_another_claim_is_taking_is_not_waited_for(store, keeper):
    id = await put_one(store)
    async with keeper.transaction(keep=True) as conn:
        await _hold(conn, keeper, "ready")
        async with asyncio.timeout(10):
            answer = await ask(store)
        assert (answer.tasks, answer.full, answer.contended) == ([], False, 0)
    assert ids_of(await claim(store)) == [id]


async def test_a_gate_that_another_claim_holds_does_not_hold_up_other_lanes(store, keeper):
    await put(store, 3, priority=9)
    free = await put_one(store, "job:free")
    await store.limit("type", TYPE, Limit(max_running=5))
    async with keeper.transaction(keep=True) as conn:
        await _hold(conn, keeper, "gate")
        assert ids_of(await claim(store)) == [free]


async def test_a_full_gate_is_passed_by_without_waiting_for_it(store, keeper):
    await put(store, 3)
    await store.limit("type", TYPE, Limit(max_running=1))
    await claim(store)
    async with keeper.transaction(keep=True) as conn:
        await _hold(conn, keeper, "gate")
        answer = await ask(store)
    assert (answer.tasks, answer.full, answer.contended) == ([], True, None)


async def test_a_claim_that_got_all_it_wanted_elsewhere_was_not_contended(store, keeper):
    await put(store, 3, priority=9)
    free = await put_one(store, "job:free")
    await store.limit("type", TYPE, Limit(max_running=5))
    async with keeper.transaction(keep=True) as conn:
        await _hold(conn, keeper, "gate")
        answer = await ask(store, 1)
    assert ids_of(answer.tasks) == [free]
    assert answer.contended is None


async def test_a_claim_is_filled_from_behind_what_another_one_is_taking(store, keeper):
    ids = await put(store, 60)
    async with rival(store, keeper, 20) as held:
        assert held == ids[:20]
        assert ids_of(await claim(store, 20)) == ids[20:40]


async def test_a_claim_of_several_priorities_is_filled_from_behind_what_another_one_is_taking(
    store, keeper
):
    """Of one lane the other holds more than a claim reads ahead."""
    first = await put(store, 3, "job:a", priority=9)
    second = await put(store, 300, "job:b", priority=5)
    await put(store, 300, "job:c", priority=1)
    async with rival(store, keeper, 120) as held:
        assert held == first + second[:117]
        assert ids_of(await claim(store, 60)) == second[117:177]


async def test_claims_of_several_priorities_pass_each_other(store, keeper):
    for n in range(20):
        await put(store, 10, f"job:{n}", priority=n)
    async with rival(store, keeper, 45) as one, rival(store, keeper, 45) as two:
        three = ids_of(await claim(store, 45))
        assert len(one) == len(two) == len(three) == 45
        assert len({*one, *two, *three}) == 135
        assert (await ask(store, 100)).contended == 0  # 65 were left, and the others may roll back


async def test_what_stands_behind_a_head_that_another_claim_is_taking_is_not_passed_by(
    store, keeper
):
    await put_one(store, "job:a", priority=9)
    other = await put_one(store, "job:b", priority=5)
    low = await put_one(store, "job:a", priority=1)
    async with rival(store, keeper, 1):
        assert ids_of(await claim(store, 2)) == [other, low]


# ── what is recorded while somebody else is at work ──────────────────────────────────────────

ASK = Step(position=0, kind="ask.child", name="work", value=b"{}")
MORE = Step(position=1, kind="step", name="more", value=b"{}")
STUCK = (
    "select count(*) from pg_stat_activity "
    "where wait_event_type = 'Lock' and datname = current_database()"
)


async def _or_waits(keeper, work: "asyncio.Task[Any]") -> None:
    """Until it is done, or held up by somebody's lock."""
    async with asyncio.timeout(60):
        while not work.done() and await keeper.peek(STUCK) == [(0,)]:
            await asyncio.sleep(0.005)


def _taking() -> Taking:
    return Taking(worker=WORKER, grant=new_grant(), lease=MINUTE, most=5)


@pytest.mark.parametrize("how", ["one child, taken", "children, taken", "child", "step", "steps"])
async def test_a_lease_that_is_just_being_settled_records_nothing_more(store, keeper, how):
    await put_one(store)
    lease = (await claim_one(store)).lease
    children = [draft(parent=lease.task), draft(parent=lease.task)]
    wishes: dict[str, dict[str, Any]] = {
        "one child, taken": {"steps": [ASK], "children": children[:1], "taking": _taking()},
        "children, taken": {"steps": [ASK], "children": children, "taking": _taking()},
        "child": {"steps": [ASK], "children": children[:1]},
        "step": {"steps": [ASK]},
        "steps": {"steps": [ASK, MORE]},
    }
    async with keeper.transaction(keep=True) as conn:
        await keeper.driver.call_on(
            conn, "settle_one", id=lease.task, grant=lease.grant, result=b"1"
        )
        recording = asyncio.create_task(store.record(lease, **wishes[how]))
        await _or_waits(keeper, recording)
    with pytest.raises(LeaseLost):
        await recording
    assert (await store.journal(lease.task)).steps == []
    for child in children:
        with pytest.raises(LookupError):
            await store.get(child.id)


async def test_a_lease_that_is_just_being_settled_reports_no_progress(store, keeper):
    await put_one(store)
    lease = (await claim_one(store)).lease
    async with keeper.transaction(keep=True) as conn:
        await keeper.driver.call_on(
            conn, "settle_one", id=lease.task, grant=lease.grant, result=b"1"
        )
        telling = asyncio.create_task(store.progress(lease, 50, None, None))
        await _or_waits(keeper, telling)
    with pytest.raises(LeaseLost):
        await telling
    assert (await store.get(lease.task)).progress is None


async def test_a_new_limit_counts_a_child_that_is_just_being_taken(store, keeper):
    await put_one(store)
    await put_one(store, "slow", delay=MINUTE)  # so that its lane is known
    lease, offer = (await claim_one(store)).lease, _taking()
    child = draft(parent=lease.task, type="slow")
    (lane,) = await store._lanes_of([child], None)
    own = by_itself(child, lane)
    assert own is not None
    async with keeper.transaction(keep=True) as conn:
        rows = await keeper.driver.call_on(
            conn,
            "record_child",
            id=lease.task,
            grant=lease.grant,
            positions=[0],
            kinds=["ask.child"],
            names=["work"],
            step_values=[b"{}"],
            **own,
            worker=offer.worker,
            taking=offer.grant,
            lease=60.0,
            durable=True,
        )
        assert [tuple(row) for row in rows] == [(True,)]
        limiting = asyncio.create_task(store.limit("type", "slow", Limit(max_running=1)))
        await _or_waits(keeper, limiting)
    await limiting
    await put_one(store, "slow")
    answer = await ask(store)
    assert (answer.tasks, answer.full) == ([], True)
    assert await store.settle([(Lease(child.id, offer.grant, 1), DONE)]) == frozenset()
    assert len(await claim(store)) == 1
