"""A disk that fails: the store says so in its own words, and goes on when it is back."""

from contextlib import suppress

import apsw
import pytest

from holdfast.errors import StoreError
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver
from tests.contract.acts import draft, put_one
from tests.sqlite.acts import Failing, peek


def _break(database, *statements):
    database._conn = Failing(database._conn, *statements)


async def test_a_rollback_that_fails_frees_the_way_for_all(store, driver, path):
    await put_one(store)
    _break(driver._writer._database, "commit", "rollback")
    with pytest.raises(StoreError, match="check the disk") as raised:
        await put_one(store)
    assert not isinstance(raised.value, apsw.Error)
    other = SqliteDriver(path, timeout=30.0)
    await put_one(SqlStore(other))
    await put_one(store)
    assert await peek(driver, "select count(*) from task") == [(3,)]
    await other.close()


async def test_a_caller_whose_rollback_fails_hears_its_own_error(store, driver, path):
    await put_one(store)
    _break(driver._writer._database, "rollback")

    async def fail() -> None:
        async with driver.transaction() as conn:
            await store.enqueue([draft()], conn=conn)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    other = SqliteDriver(path, timeout=30.0)
    await put_one(SqlStore(other))
    await put_one(store)
    assert await peek(driver, "select count(*) from task") == [(3,)]
    await other.close()


async def test_a_transaction_that_is_too_long_and_cannot_be_rolled_back_stops_nobody(store, driver):
    await put_one(store)
    _break(driver._writer._database, "rollback")

    async def stay() -> None:
        async with driver.transaction(at_most=0.1) as conn:
            with suppress(StoreError):  # where the machine is so slow that it is too late already
                await store.enqueue([draft()], conn=conn)
            await put_one(store)
            await conn.execute("select 1")

    with pytest.raises(StoreError, match="was rolled back"):
        await stay()
    assert await peek(driver, "select count(*) from task") == [(2,)]


async def test_a_commit_that_fails_is_told_in_our_words(store, driver):
    await put_one(store)
    _break(driver._writer._database, "commit")
    with pytest.raises(StoreError, match="check the disk"):
        async with driver.transaction() as conn:
            await store.enqueue([draft()], conn=conn)
    driver._writer._database._conn = driver._writer._database._conn._conn
    await put_one(store)
    assert await peek(driver, "select count(*) from task") == [(2,)]


async def test_a_question_whose_end_fails_does_not_keep_its_snapshot(store, driver):
    await put_one(store)
    assert len((await store.lanes()).lanes) == 1
    _break(driver._reader._database, "commit", "rollback")
    with pytest.raises(StoreError, match="check the disk"):
        await store.lanes()
    await put_one(store, "job:other")
    assert len((await store.lanes()).lanes) == 2


async def test_without_threads_a_rollback_that_fails_frees_the_way_too(path):
    driver = SqliteDriver(path, inline=True)
    store = SqlStore(driver)
    await store.migrate()
    await put_one(store)
    _break(driver._database, "commit", "rollback")
    with pytest.raises(StoreError, match="check the disk"):
        await put_one(store)
    await put_one(store)
    assert await peek(driver, "select count(*) from task") == [(2,)]
    await driver.close()
