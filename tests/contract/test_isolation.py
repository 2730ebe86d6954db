"""Verbs are made for read committed, and run so whatever the database's default is."""

import asyncio

import pytest_asyncio

from tests.contract.acts import DONE, MINUTE, claim, finish, ids_of, put

ONLY = "postgres"


@pytest_asyncio.fixture(loop_scope="session")
async def levels(keeper, store):
    """The isolation levels in which the clock was read."""
    schema = keeper.schema
    await keeper.peek(f"create table {schema}.level (at text)")
    await keeper.peek(
        f"""
        create function {schema}.noted_clock() returns timestamptz language plpgsql as $$
        begin
          insert into {schema}.level values (current_setting('transaction_isolation'));
          return (select at from {schema}.test_clock);
        end $$
        """
    )
    clock = f"create or replace function {schema}.clock() returns timestamptz language sql as "
    await keeper.peek(f"{clock} 'select {schema}.noted_clock()'")

    async def read() -> set[str]:
        return {level for (level,) in await keeper.peek(f"select distinct at from {schema}.level")}

    yield read
    await keeper.peek(f"{clock} 'select at from {schema}.test_clock'")
    await keeper.peek(f"drop function {schema}.noted_clock")
    await keeper.peek(f"drop table {schema}.level")


async def test_every_verb_runs_in_read_committed(store, levels):
    await put(store, 3, expires=MINUTE)
    first, second, third = await claim(store)
    await store.renew([first.lease], MINUTE)
    await finish(store, first)
    async with store.transaction() as conn:
        await store.settle([(second.lease, DONE)], conn=conn)
    await store.revoke(third.lease.task, third.lease.fence)
    assert len(await store.recover()) == 1
    await store.promote()
    assert await levels() == {"read committed"}


async def test_a_query_and_a_callers_transaction_run_in_read_committed(store):
    level = "select current_setting('transaction_isolation')"
    assert (await store.query(level))[1] == [("read committed",)]
    async with store.transaction() as conn:
        assert await conn.fetchval(level) == "read committed"


async def test_many_tasks_at_once_come_in_and_are_taken_once(store, keeper):
    ids = await put(store, 1500)
    taken = await asyncio.gather(*(claim(keeper.store(), 250, worker=n) for n in range(1, 7)))
    found = [id for some in taken for id in ids_of(some)]
    assert sorted(found) == sorted(ids)
