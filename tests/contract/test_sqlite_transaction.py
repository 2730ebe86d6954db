"""On SQLite a caller's rows and tasks go together, on the store's own connection and no other."""

import sqlite3

import apsw
import pytest

from holdfast.errors import InvalidInput, StoreError
from tests.contract.acts import claim, draft, ids_of, put_one

ONLY = "sqlite"


async def test_rows_and_tasks_are_written_together(store, keeper):
    async with keeper.driver.transaction() as conn:
        await conn.execute("create temp table bill (id integer)")
        await conn.execute("insert into bill values (?)", (7,))
        (id,) = await store.enqueue([draft()], conn=conn)
    assert ids_of(await claim(store)) == [id]
    assert await keeper.peek("select id from bill") == [(7,)]
    await keeper.peek("drop table bill")


async def test_rows_and_tasks_are_undone_together(store, keeper):
    await keeper.peek("create temp table bill (id integer)")
    async with keeper.transaction(keep=False) as conn:
        await conn.execute("insert into bill values (7)")
        await store.enqueue([draft()], conn=conn)
    assert await claim(store) == []
    assert await keeper.peek("select id from bill") == []
    await keeper.peek("drop table bill")


@pytest.mark.parametrize("library", [sqlite3.connect, apsw.Connection], ids=["sqlite3", "apsw"])
async def test_a_connection_that_is_not_ours_is_refused(store, dump, library):
    conn = library(":memory:")
    before = await dump()
    with pytest.raises(InvalidInput, match=r"app\.transaction\(\)"):
        await store.enqueue([draft()], conn=conn)
    conn.close()
    assert await dump() == before


async def test_a_connection_of_another_store_is_refused(store, keeper):
    async with keeper.elsewhere() as place:
        await place.store().migrate()
        async with place.driver.transaction() as conn:
            with pytest.raises(InvalidInput, match="another store"):
                await store.enqueue([draft()], conn=conn)
        assert await place.peek("select * from task") == []


async def test_a_transaction_that_has_ended_takes_nothing_more(store, keeper):
    await put_one(store)
    async with keeper.driver.transaction() as conn:
        pass
    with pytest.raises(StoreError, match="begin a new one"):
        await store.enqueue([draft()], conn=conn)
    assert len(await claim(store)) == 1


async def test_on_sqlite_nothing_can_be_written_without_await(store, keeper):
    with pytest.raises(InvalidInput, match=r"app\.transaction\(\)"):
        (await store.prepare([draft()])).write(object())
