"""While somebody holds an old snapshot, claims start behind what was taken: none is overlooked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast.stores.sql import SqlStore
from holdfast.tasks.limits import Limit
from tests.contract.acts import (
    HANDED_BACK,
    TYPE,
    claim,
    claim_one,
    draft,
    finish,
    ids_of,
    put,
    put_one,
)
from tests.contract.rivals import rival

ONLY = "postgres"
TAKEN = 6000


@pytest_asyncio.fixture(loop_scope="session")
async def worn(store: SqlStore, keeper: Any) -> AsyncIterator[SqlStore]:
    """A store that has taken very many tasks while somebody looks at an old state of them."""
    async with keeper.transaction(keep=False) as reader:
        await reader.execute("set transaction isolation level repeatable read")
        await reader.fetch(f"select from {keeper.schema}.ready")
        await put(store, TAKEN)
        await put(store, 3, "job:other", priority=3)
        for _ in range(TAKEN // 1000):
            assert len(await claim(store, 1000)) == 1000
        yield store


def _is_worn(store: SqlStore) -> bool:
    return "floors" in (store._memory or "")


async def _warm(store: SqlStore) -> None:
    """Two more claims, the second of which starts behind the floors."""
    await put(store, 20)
    assert len(await claim(store, 5)) == 5
    assert _is_worn(store)
    assert len(await claim(store, 5)) == 5


async def test_order_and_number_stay_the_same(worn):
    ids = await put(worn, 30)
    old = ids_of(await claim(worn, 3))  # what was left of the two lanes at first
    assert _is_worn(worn)
    assert ids_of(await claim(worn, 12)) + ids_of(await claim(worn, 50)) == ids[len(ids) - 30 :]
    assert len(old) == 3


async def test_what_is_more_urgent_is_found_at_once(worn):
    await _warm(worn)
    new = await put_one(worn, priority=9)
    again = await put_one(worn, "job:other", priority=3)
    low = await put_one(worn, priority=-9)
    assert ids_of(await claim(worn, 2)) == [new, again]
    assert _is_worn(worn)
    assert ids_of(await claim(worn, 100))[-1] == low


async def test_a_claim_is_filled_from_behind_what_another_one_is_taking(worn, keeper):
    await _warm(worn)
    ids = await put(worn, 60)
    await claim(worn, 13)  # what was left of others
    async with rival(worn, keeper, 20) as held:
        assert held == ids[:20]
        assert ids_of(await claim(worn, 20)) == ids[20:40]
        assert _is_worn(worn)


async def test_what_was_given_back_is_found_within_a_second(worn, clock):
    await _warm(worn)
    held = await claim(worn, 4)
    await finish(worn, held[1], HANDED_BACK)
    await clock.advance(1.01)
    assert ids_of(await claim(worn, 1)) == ids_of(held[1:2])


async def test_what_was_given_back_is_found_by_a_claim_that_would_come_back_short(worn):
    await _warm(worn)
    held = await claim(worn, 4)
    await finish(worn, held[1], HANDED_BACK)
    claimed = await claim(worn, 100)
    assert held[1].lease.task in ids_of(claimed)
    assert await claim(worn, 1) == []


async def test_what_comes_back_after_a_whole_look_is_found_by_the_next_one(worn, clock):
    """Floors outlive a whole look only where nobody stands below them."""
    await _warm(worn)
    held = await claim(worn, 4)
    await finish(worn, held[1], HANDED_BACK)
    await put(worn, TAKEN, priority=9)
    for _ in range(TAKEN // 1000):
        assert len(await claim(worn, 1000)) == 1000
    await put(worn, 3, priority=5)
    await clock.advance(1.01)
    assert [c.priority for c in await claim(worn, 2)] == [5, 5]
    assert _is_worn(worn)
    assert [c.priority for c in await claim(worn, 1)] == [5]
    assert ids_of(await claim(worn, 1)) == ids_of(held[1:2])


@pytest.mark.parametrize("between", [0, 5])
async def test_what_a_key_lets_in_is_found_at_once(worn, between):
    """It comes to stand where it stood behind its key, which may be before what was taken."""
    await worn.limit("type", TYPE, Limit(max_per_key=1))
    await _warm(worn)
    await claim(worn, 13)  # what was left of others
    first, second = await put(worn, 2, concurrency_key="k")
    others = await put(worn, 30)
    held = await claim(worn, 1 + between)
    assert ids_of(held) == [first, *others[:between]]
    assert ids_of(await claim(worn, 5)) == others[between : between + 5]
    await finish(worn, held[0])
    assert ids_of(await claim(worn, 1)) == [second]
    assert _is_worn(worn)


async def test_a_slow_transactions_task_is_found_within_a_second(worn, keeper, clock):
    slow = draft()
    async with keeper.transaction(keep=True) as conn:
        await worn.enqueue([slow], conn=conn)
        await _warm(worn)
    await clock.advance(1.01)
    assert ids_of(await claim(worn, 1)) == [slow.id]


async def test_a_clock_that_was_set_back_keeps_no_floor(worn, clock):
    await _warm(worn)
    held = await claim(worn, 4)
    await finish(worn, held[1], HANDED_BACK)
    await clock.advance(-3600)
    assert ids_of(await claim(worn, 1)) == ids_of(held[1:2])


async def test_a_process_that_just_started_overlooks_nothing(worn, keeper):
    await _warm(worn)
    held = await claim(worn, 4)
    await finish(worn, held[1], HANDED_BACK)
    assert (await claim_one(keeper.store())).lease.task == held[1].lease.task


async def test_floors_are_forgotten_when_nobody_looks_back_any_more(store, keeper, clock):
    await put(store, 10)
    assert len(await claim(store, 5)) == 5
    assert not _is_worn(store)
    assert (await claim_one(store)).lane.type == TYPE
