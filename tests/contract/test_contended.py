"""Claims that meet others at work, which only PostgreSQL has: ask again at once, or pass by."""

import asyncio

from holdfast.tasks.limits import Limit
from tests.contract.acts import TYPE, ask, claim, ids_of, put, put_one

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
