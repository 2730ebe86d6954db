"""What PostgreSQL says is told in our own words, with a way out."""

import asyncio

import asyncpg
import pytest

from holdfast.errors import InvalidInput, SchemaMismatch, StoreError, StoreUnreachable
from holdfast.stores.postgres import driver
from tests.contract.acts import MINUTE, draft
from tests.servers import ask

RAISES = """
create or replace function holdfast.clock() returns timestamptz language plpgsql
as 'begin raise exception ''so it is'' using errcode = ''{}''; end'
"""


@pytest.mark.parametrize(
    ("state", "way_out"),
    {
        "25006": "Use the primary",
        "40001": "ask again",
        "40P01": "ask again",
        "53100": "make room",
        "55P03": "raise lock_timeout",
        "57014": "raise statement_timeout",
        "42501": "grant it usage",
        "XX000": "see the server's log",
    }.items(),
)
async def test_every_error_of_the_server_is_a_store_error_with_a_way_out(
    store, conn, monkeypatch, state, way_out
):
    monkeypatch.setattr(driver, "_TRIES", 2)
    await conn.execute(RAISES.format(state))
    with pytest.raises(StoreError, match=f"so it is.*{way_out}") as told:
        await store.enqueue([draft()])
    assert not isinstance(told.value, StoreUnreachable)


@pytest.mark.parametrize("state", ["57P01", "08006", "53300"])
async def test_a_server_that_goes_away_is_unreachable(store, conn, state):
    await conn.execute(RAISES.format(state))
    with pytest.raises(StoreUnreachable):
        await store.enqueue([draft()])


@pytest.mark.parametrize(
    ("setting", "way_out"),
    [("lock_timeout", "raise lock_timeout"), ("statement_timeout", "raise statement_timeout")],
)
async def test_a_role_that_may_not_wait_hears_so(store, conn, url, setting, way_out):
    name = url.rpartition("/")[2]
    await store.enqueue([draft()])
    ask(url, f"alter database {name} set {setting} = '50ms'")
    await conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )
    async with conn.transaction():
        await conn.execute("lock table holdfast.task")
        with pytest.raises(StoreError):  # it meets the connection that was cut
            await store.enqueue([draft()])
        with pytest.raises(StoreError, match=way_out):
            await store.enqueue([draft()])


async def test_values_of_a_wrong_kind_are_no_fault_of_the_server(store):
    with pytest.raises(InvalidInput, match=r"cannot hold|cannot be asked"):
        await store.recover(batch=10**12)
    with pytest.raises(InvalidInput, match=r"cannot hold|cannot be asked"):
        await store.claim(worker=1, lanes=["a"], want=1, lease=MINUTE)
    with pytest.raises(InvalidInput, match="cannot hold"):
        await store.promote(batch=-1)


async def test_a_connection_of_the_caller_that_is_busy_is_not_a_server_that_is_gone(store, conn):
    async with conn.transaction():
        await store.enqueue([draft()], conn=conn)
        busy = asyncio.create_task(conn.execute("select pg_sleep(1)"))
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="conn= cannot be used now") as told:
            await store.enqueue([draft()], conn=conn)
        assert not isinstance(told.value, StoreUnreachable)
        await busy


async def test_a_failed_transaction_of_the_caller_must_begin_again(store, conn):
    transaction = conn.transaction()
    await transaction.start()
    await store.enqueue([draft()], conn=conn)
    with pytest.raises(asyncpg.PostgresError):
        await conn.execute("select 1 / 0")
    with pytest.raises(StoreError, match="roll it back and begin again"):
        await store.enqueue([draft()], conn=conn)
    await transaction.rollback()


async def test_a_schema_that_went_away_is_a_mismatch(store, conn):
    await conn.execute("drop schema holdfast cascade")
    with pytest.raises(SchemaMismatch):
        await store.enqueue([draft()])
