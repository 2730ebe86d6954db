"""A few connections for many calls: who waits is served in turn, and no place is ever lost."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.errors import StoreError
from holdfast.stores.postgres.pool import Pool


@pytest.fixture
async def pool(url: str) -> AsyncIterator[Pool]:
    pool = Pool(url, 1)
    yield pool
    await pool.close()


async def _pid(conn: asyncpg.Connection) -> int:
    pid: int = await conn.fetchval("select pg_backend_pid()")
    return pid


async def _waits(pool: Pool) -> "asyncio.Task[asyncpg.Connection]":
    waiting = asyncio.create_task(pool.lend(20))
    await asyncio.sleep(0)
    assert pool.at_hand() is None
    return waiting


async def test_the_same_connection_serves_one_after_the_other(pool: Pool):
    conn = await pool.lend(20)
    first, second = await _waits(pool), await _waits(pool)
    pool.take_back(conn)
    assert await first is conn
    assert not second.done()
    pool.take_back(conn)
    assert await second is conn
    pool.take_back(conn)
    assert pool.at_hand() is conn
    pool.take_back(conn)


async def test_who_comes_later_never_overtakes_who_waits(pool: Pool):
    conn = await pool.lend(20)
    waiting = await _waits(pool)
    pool.take_back(conn)
    assert pool.at_hand() is None
    assert await waiting is conn
    pool.take_back(conn)


async def test_a_broken_connection_leaves_its_place_to_a_new_one(pool: Pool):
    conn = await pool.lend(20)
    pid, waiting = await _pid(conn), await _waits(pool)
    pool.take_back(conn, ConnectionError())
    other = await waiting
    assert conn.is_closed()
    assert await _pid(other) != pid
    pool.take_back(other)


async def test_one_that_breaks_on_its_way_is_replaced(pool: Pool):
    conn = await pool.lend(20)
    waiting = await _waits(pool)
    pool.take_back(conn)
    conn.terminate()
    other = await waiting
    assert other is not conn
    assert await _pid(other)
    pool.take_back(other)


async def test_who_stops_waiting_leaves_the_turn_to_the_next(pool: Pool):
    conn = await pool.lend(20)
    gone, next_one = await _waits(pool), await _waits(pool)
    gone.cancel()
    pool.take_back(conn)
    assert await next_one is conn
    pool.take_back(conn)


async def test_who_stops_waiting_at_the_last_moment_gives_it_back(pool: Pool):
    conn = await pool.lend(20)
    gone, next_one = await _waits(pool), await _waits(pool)
    pool.take_back(conn)
    gone.cancel()
    assert await next_one is conn
    pool.take_back(conn)


async def test_a_place_that_was_given_back_at_the_last_moment_is_no_less(pool: Pool):
    conn = await pool.lend(20)
    gone = await _waits(pool)
    pool.take_back(conn, ConnectionError())
    gone.cancel()
    await asyncio.wait({gone})
    other = await pool.lend(20)
    assert await _pid(other)
    pool.take_back(other)


async def test_waiting_ends_in_time_and_takes_nothing_along(pool: Pool):
    conn = await pool.lend(20)
    with pytest.raises(TimeoutError):
        await pool.lend(0.01)
    pool.take_back(conn)
    assert pool.at_hand() is conn
    pool.take_back(conn)


async def test_a_connection_that_cannot_be_opened_leaves_its_place(url: str):
    pool = Pool(url.replace(str(url.rpartition("/")[2]), "no_such_database"), 1)
    for _ in range(2):
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await pool.lend(20)
    await pool.close()


async def test_who_waits_when_it_closes_is_told(pool: Pool):
    conn = await pool.lend(20)
    waiting = await _waits(pool)
    await pool.close()
    pool.take_back(conn)
    with pytest.raises(StoreError, match="closed"):
        await waiting
    assert conn.is_closed()


async def test_a_crowd_of_callers_never_has_more_than_its_connections(url: str):
    pool = Pool(url, 3)
    pids: set[int] = set()

    async def ask() -> None:
        async with pool.connection(20) as conn:
            pids.add(await _pid(conn))

    await asyncio.gather(*(ask() for _ in range(50)))
    assert len(pids) <= 3
    await pool.close()
