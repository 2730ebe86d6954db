"""Enqueue on a caller's PostgreSQL connection: what its isolation and its faults bring along."""

import asyncpg
import pytest

from holdfast.errors import InvalidInput, StoreError, UnknownTask
from tests.contract.acts import claim, draft, ids_of, put_one, seconds

ONLY = "postgres"


async def test_nobody_sees_a_task_before_its_transaction_commits(store, keeper):
    async with keeper.transaction(keep=True) as conn:
        (id,) = await store.enqueue([draft()], conn=conn)
        with pytest.raises(UnknownTask):
            await store.get(id)
        assert await claim(store) == []
    assert ids_of(await claim(store)) == [id]


async def test_a_key_taken_meanwhile_under_repeatable_read_comes_with_advice(store, keeper):
    async with keeper.transaction(keep=False) as conn:
        await conn.execute("set transaction isolation level repeatable read")
        await conn.fetchval("select 1")
        await put_one(store, key="order-7")
        with pytest.raises(StoreError, match="begin the transaction again"):
            await store.enqueue([draft(key="order-7")], conn=conn)


async def test_an_id_used_before_is_refused_in_plain_words(store, keeper):
    used = draft()
    await store.enqueue([used])
    async with keeper.transaction(keep=False) as conn:
        with pytest.raises(InvalidInput, match="used before"):
            await store.enqueue([used, draft()], conn=conn)


async def test_what_would_expire_before_its_time_is_refused_and_breaks_no_transaction(
    store, keeper
):
    hopeless = draft(run_at=await store.now() + seconds(60), expires=seconds(30))
    async with keeper.transaction(keep=True) as conn:
        with pytest.raises(InvalidInput, match="before its run_at"):
            await store.enqueue([hopeless], conn=conn)
        (id,) = await store.enqueue([draft()], conn=conn)
    assert ids_of(await claim(store)) == [id]


async def test_a_connection_of_a_pool_may_be_handed_over(store, keeper):
    pool = await asyncpg.create_pool(keeper.url, min_size=1, max_size=1, statement_cache_size=0)
    async with pool, pool.acquire() as conn, conn.transaction():
        (id,) = await store.enqueue([draft()], conn=conn)
    assert ids_of(await claim(store)) == [id]


async def test_a_connection_that_was_closed_is_refused(store, keeper):
    await put_one(store)
    async with keeper.transaction(keep=True) as conn:
        pass
    with pytest.raises(StoreError):
        await store.enqueue([draft()], conn=conn)


async def test_a_connection_to_another_database_is_refused(store, keeper, postgres_current):
    conn = await asyncpg.connect(postgres_current.url)
    try:
        async with conn.transaction():
            with pytest.raises(InvalidInput, match="of this store is not"):
                await store.enqueue([draft()], conn=conn)
            assert await conn.fetchval("select 1") == 1
    finally:
        await conn.close()


async def test_a_connection_is_looked_at_once(store, keeper):
    async with keeper.transaction(keep=False) as conn:
        asked = []
        conn.add_query_logger(lambda record: asked.append(record.query))
        for _ in range(3):
            await store.enqueue([draft()], conn=conn)
        assert sum("current_database" in query for query in asked) == 1
