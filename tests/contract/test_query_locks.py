"""Queries of people's own on PostgreSQL take locks: none outlives them, none is waited for long."""

import pytest

from holdfast.errors import HoldfastError, StoreError
from tests.contract.acts import put_one

ONLY = "postgres"
HELD = "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711"


async def test_a_lock_of_the_session_does_not_outlive_its_query(store, peek):
    await store.query("select pg_advisory_lock(4711)")
    assert await peek(HELD) == [(0,)]


async def test_a_lock_of_the_session_does_not_outlive_a_query_that_fails(store, peek):
    with pytest.raises(HoldfastError):
        await store.query("select pg_advisory_lock(4711), 1 / (select count(*) from task)")
    assert await peek(HELD) == [(0,)]


async def test_a_setting_does_not_outlive_its_query(store):
    await store.query("select set_config('work_mem', '77kB', false)")
    _, rows = await store.query("select current_setting('work_mem')")
    assert rows != [("77kB",)]


async def test_a_table_that_is_locked_is_not_waited_for_to_the_end(store, keeper, monkeypatch):
    await put_one(store)
    await store.query("select 1")
    async with keeper.transaction(keep=False) as conn:
        await conn.execute(f"lock table {keeper.schema}.task")
        with monkeypatch.context() as patient:
            patient.setattr(keeper.driver, "_timeout", 3.0)
            with pytest.raises(StoreError, match="has locked a table that the query reads"):
                await store.query("select count(*) from task")
    assert (await store.query("select count(*) from task"))[1] == [(1,)]
