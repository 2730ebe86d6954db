"""Claims that meet others at work, which only PostgreSQL has: ask again at once, or pass by."""

import asyncio

from holdfast.tasks.limits import Limit
from tests.contract.acts import TYPE, ask, claim, ids_of, put, put_one
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
