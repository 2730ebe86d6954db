"""No call waits without end, and nothing is left behind by one that gave up."""

import asyncio
import socket
from contextlib import suppress

import pytest

from holdfast.errors import StoreUnreachable
from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore
from tests.contract.acts import claim_one, draft, put_one, seconds
from tests.postgres.test_under_way import until
from tests.waiting import eventually

NOBODY_WAITS = """
select count(*) = 0 from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and wait_event_type = 'Lock'
"""


@pytest.fixture
async def hasty(url, store):
    """A store that waits for a second."""
    hasty = SqlStore(PostgresDriver(url, timeout=1.0, connections=2))
    await eventually(lambda: accepts(hasty))
    yield hasty
    await hasty.close()


async def accepts(store: SqlStore) -> bool:
    """Where the machine is so slow that the second was not enough, it may be asked again."""
    with suppress(StoreUnreachable):
        await put_one(store)
        return True
    return False


@pytest.mark.parametrize("count", [1, 1200], ids=["statement", "copy"])
async def test_a_call_that_waits_for_a_lock_gives_up(hasty, conn, count):
    async with conn.transaction():
        await conn.execute("lock table holdfast.task")
        with pytest.raises(StoreUnreachable, match="did not answer in time"):
            await hasty.enqueue([draft() for _ in range(count)])
        async with asyncio.timeout(60):
            await until(conn, NOBODY_WAITS)
    await eventually(lambda: accepts(hasty))


async def test_a_call_that_finds_no_free_connection_gives_up(hasty, conn):
    async with conn.transaction():
        await conn.execute("lock table holdfast.task")
        asked = [hasty.enqueue([draft() for _ in range(600)]) for _ in range(6)]
        heard = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(error) for error in heard} == {StoreUnreachable}
    await eventually(lambda: accepts(hasty))


async def test_a_renewal_gives_up_while_there_is_time_to_stop_the_work(store, conn):
    await put_one(store)
    held = await claim_one(store)
    started = asyncio.get_running_loop().time()
    async with conn.transaction():
        await conn.execute("lock table holdfast.lease")
        with pytest.raises(StoreUnreachable):
            await store.renew([held.lease], seconds(0.6))
    assert asyncio.get_running_loop().time() - started < 20
    assert (await store.renew([held.lease], seconds(60))).lost == frozenset()


async def test_many_callers_of_a_server_that_never_answers_wait_only_once():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(200)
        port = silent.getsockname()[1]
        store = SqlStore(PostgresDriver(f"postgresql://x@127.0.0.1:{port}/x", timeout=0.3))
        async with asyncio.timeout(60):
            heard = await asyncio.gather(
                *(store.enqueue([draft()]) for _ in range(400)), return_exceptions=True
            )
        await store.close()
    assert {type(error) for error in heard} == {StoreUnreachable}
