"""On PostgreSQL a handler's transaction has a connection of its own."""

import asyncio
from contextlib import suppress

import asyncpg
import pytest

from holdfast.errors import StoreError
from tests.contract.acts import DONE, MINUTE, claim_one, finish, put_one, status_of

ONLY = "postgres"


async def test_nothing_is_seen_before_the_commit(store, keeper):
    id = await put_one(store)
    held = await claim_one(store)
    async with store.transaction() as conn:
        await store.settle([(held.lease, DONE)], conn=conn)
        assert await status_of(store, id) == "running"
    assert await status_of(store, id) == "done"


async def test_a_transaction_that_failed_does_not_pretend_to_commit(store, keeper, bill):
    async def handler() -> None:
        async with store.transaction() as conn:
            await conn.execute(f"insert into {bill} values (7)")
            with suppress(asyncpg.DivisionByZeroError):
                await conn.execute("select 1 / 0")

    with pytest.raises(StoreError, match="roll it back"):
        await handler()
    assert await keeper.peek(f"select id from {bill}") == []


async def test_open_transactions_keep_nobody_waiting(store, keeper):
    """More of them than the store has connections for its own calls."""
    id = await put_one(store)
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        opened, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def handler() -> None:
            async with store.transaction() as conn:
                await conn.execute("select 1")
                opened.release()
                await go_on.wait()

        for _ in range(8):
            group.create_task(handler())
        for _ in range(8):
            await opened.acquire()
        held = await claim_one(store)
        assert (await store.renew([held.lease], MINUTE)).lost == frozenset()
        await finish(store, held)
        go_on.set()
    assert await status_of(store, id) == "done"


async def test_a_transaction_leaves_nothing_behind_for_the_next(store, keeper):
    async with store.transaction() as conn:
        await conn.execute("select set_config('holdfast.test', 'left', false)")
    for _ in range(3):
        async with store.transaction() as conn:
            assert not await conn.fetchval("select current_setting('holdfast.test', true)")


async def test_savepoints_may_be_used_inside(store, keeper, bill):
    async with store.transaction() as conn:
        inner = conn.transaction()
        await inner.start()
        await conn.execute(f"insert into {bill} values (1)")
        await inner.rollback()
        await conn.execute(f"insert into {bill} values (2)")
    assert await keeper.peek(f"select id from {bill}") == [(2,)]
