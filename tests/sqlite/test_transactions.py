"""A caller's transaction on the only writer: who waits for it, and what if it never gets going."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from holdfast.errors import StoreError
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver
from holdfast.stores.sqlite.threads import Hold, Job, Writer
from tests.contract.acts import draft, put_one
from tests.sqlite.acts import busy, peek


async def _open_and_wait(driver: SqliteDriver, opened: asyncio.Event | None = None) -> None:
    async with driver.transaction(at_most=600):
        if opened:
            opened.set()
        await asyncio.sleep(600)


async def test_one_that_is_cancelled_before_it_begins_stops_nobody(store, driver):
    await put_one(store)
    async with busy(driver, writes=True):
        waiting = asyncio.create_task(_open_and_wait(driver))
        await asyncio.sleep(0.05)
        waiting.cancel()
    async with asyncio.timeout(60):
        await put_one(store)
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()


async def test_one_that_is_cancelled_behind_another_stops_nobody(store, driver):
    await put_one(store)
    async with driver.transaction():
        waiting = [asyncio.create_task(_open_and_wait(driver)) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        await put_one(store)
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_one_that_is_cancelled_inside_its_block_stops_nobody(store, driver):
    await put_one(store)
    opened = asyncio.Event()
    waiting = asyncio.create_task(_open_and_wait(driver, opened))
    await opened.wait()
    waiting.cancel()
    async with asyncio.timeout(60):
        await put_one(store)
    await asyncio.gather(waiting, return_exceptions=True)


async def test_what_it_asked_for_before_it_began_is_found(driver):
    """Its rollback may have been gathered together with its begin."""
    writer, hold = Writer("writer", driver._open), Hold(5)
    other, rollback = Job(print), Job(print, hold=hold)
    writer._pending.extend([other, rollback])
    assert writer._next_of(hold, over=0) is rollback
    assert list(writer._pending) == [other]
    assert writer._next_of(hold, over=0) is None


async def test_one_that_stays_too_long_is_rolled_back(store, driver):
    await put_one(store)

    async def stay() -> None:
        async with driver.transaction(at_most=0.1) as conn:
            with suppress(StoreError):  # where the machine is so slow that it is too late already
                await store.enqueue([draft()], conn=conn)
            await put_one(store)  # without conn=: waits for the end
            await store.enqueue([draft()], conn=conn)

    with pytest.raises(StoreError, match="was rolled back"):
        await stay()
    assert await peek(driver, "select count(*) from task") == [(2,)]


async def test_a_transaction_that_is_not_open_any_more_takes_nothing(driver):
    async def end_it_by_hand() -> None:
        async with driver.transaction() as conn:
            await conn.execute("create table bill (id integer)")
            with pytest.raises(StoreError, match="ended the transaction"):
                await conn.execute("rollback")
            await conn.execute("create table receipt (id integer)")

    with pytest.raises(StoreError, match="not open any more"):
        await end_it_by_hand()
    tables = await peek(driver, "select name from sqlite_schema where name in ('bill', 'receipt')")
    assert tables == []


@asynccontextmanager
async def in_memory(*, inline: bool = False) -> AsyncIterator[tuple[SqlStore, SqliteDriver]]:
    driver = SqliteDriver(":memory:", inline=inline)
    await driver.migrate()
    yield SqlStore(driver), driver
    await driver.close()


class Undone(Exception):
    pass


async def test_in_memory_nobody_sees_what_is_not_committed():
    async with in_memory() as (store, driver):
        looking = []

        async def undo() -> None:
            async with driver.transaction() as conn:
                await store.enqueue([draft("job:ghost")], conn=conn)
                looking.append(asyncio.create_task(store.lanes()))
                await asyncio.sleep(0.1)
                assert not looking[0].done()
                raise Undone

        with pytest.raises(Undone):
            await undo()
        assert (await looking[0]).lanes == {}
        await put_one(store, "job:other")
        ghost = await put_one(store, "job:ghost")
        assert (await store.get(ghost)).type == "job:ghost"


async def test_in_memory_others_see_it_when_it_is_committed():
    async with in_memory() as (store, driver):
        async with driver.transaction() as conn:
            (id,) = await store.enqueue([draft()], conn=conn)
            looking = asyncio.create_task(store.get(id))
            await asyncio.sleep(0.05)
        assert (await looking).id == id


async def test_without_threads_nobody_sees_what_is_not_committed_either():
    async with in_memory(inline=True) as (store, driver):
        async with driver.transaction() as conn:
            await store.enqueue([draft()], conn=conn)
            with pytest.raises(StoreError, match="transaction is open"):
                await store.lanes()
        assert len((await store.lanes()).lanes) == 1


async def test_the_number_of_a_lane_never_comes_again(store, driver):
    await put_one(store, "job:one")
    ((first,),) = await peek(driver, "select id from lane")
    async with driver.transaction() as conn:
        for table in ("lane", "task", "ready"):
            await conn.execute(f"delete from {table}")
    await put_one(SqlStore(driver), "job:two")
    ((second,),) = await peek(driver, "select id from lane")
    assert second > first


async def test_a_question_that_nobody_waits_for_is_not_asked(driver):
    asked = []
    async with busy(driver, writes=False):
        question = asyncio.create_task(driver._ask(lambda _: asked.append(1), writes=False))
        await asyncio.sleep(0.05)
        question.cancel()
    await driver.check()
    assert asked == []
