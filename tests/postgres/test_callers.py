"""Tasks go into a caller's transaction on PostgreSQL, whatever library it was opened with."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.errors import InvalidInput, KeyConflict, StoreError, StoreUnreachable
from holdfast.notifier import channel_of
from holdfast.stores.postgres.address import hint_payload
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import DONE, claim, draft, ids_of, put_one
from tests.postgres.libraries import AWAITED, BLOCKING, Open, django_connection

EVERY = AWAITED | BLOCKING
SECRET = b'{"card": "4111"}'


@pytest.fixture(params=EVERY)
def library(request: pytest.FixtureRequest) -> Open:
    return EVERY[request.param]


@pytest.fixture
async def bills(conn):
    """Rows of the caller's own."""
    await conn.execute("create table bill (id int)")

    async def written() -> list[int]:
        return [id for (id,) in await conn.fetch("select id from bill order by id")]

    return written


async def test_a_task_comes_with_the_callers_rows(store, url, bills, library):
    async with library(url) as theirs:
        await theirs.execute("insert into bill values (7)")
        (id,) = await theirs.enqueue(store, [draft(payload=SECRET)])
        assert await claim(store) == []
        await theirs.commit()
    (claimed,) = await claim(store)
    assert (claimed.lease.task, claimed.payload) == (id, SECRET)
    assert await bills() == [7]


async def test_a_task_goes_with_the_callers_rows(store, url, bills, library):
    async with library(url) as theirs:
        await theirs.execute("insert into bill values (7)")
        await theirs.enqueue(store, [draft()])
        await theirs.rollback()
    assert await claim(store) == []
    assert await bills() == []


async def test_a_task_may_be_the_only_statement_of_a_transaction(store, url, library):
    async with library(url) as theirs:
        await theirs.enqueue(store, [draft()])
        await theirs.rollback()
        assert await claim(store) == []
        ids = await theirs.enqueue(store, [draft()])
        await theirs.commit()
    assert ids_of(await claim(store)) == ids


async def test_every_wish_arrives_with_its_type(store, url, conn, library):
    soon = datetime.now(UTC) + timedelta(hours=1)
    every = [
        draft(
            priority=5,
            delay=timedelta(seconds=90),
            expires=timedelta(hours=2),
            max_tries=7,
            retry=RetryPolicy(max_attempts=9),
            key="a%s:b $1 'c'",
            unique="while_pending",
            concurrency_key="customer-7",
            tenant="acme",
            user_id="Ann O'Neill %s $1",
            tags=("x", "y"),
        ),
        draft(priority=-32_000, run_at=soon, expires=timedelta(days=9)),
        draft(parent=uuid4(), payload=b'"\x7f"'),
    ]
    async with library(url) as theirs:
        ids = await theirs.enqueue(store, every)
        await theirs.commit()
    first, second, third = [await store.get(id) for id in ids]
    assert (first.priority, first.max_tries, first.key) == (5, 7, "a%s:b $1 'c'")
    assert (first.tenant, first.tags) == ("acme", ("x", "y"))
    assert (first.user_id, second.user_id) == ("Ann O'Neill %s $1", None)
    assert (second.priority, second.run_at) == (-32_000, soon)
    assert third.parent == every[2].parent
    (kept,) = await conn.fetch("select * from holdfast.task where id = $1", first.id)
    assert kept["concurrency_key"] == "customer-7"
    assert kept["expires_at"] - kept["created_at"] == timedelta(hours=2)
    assert kept["run_at"] - kept["created_at"] == timedelta(seconds=90)
    assert json.loads(kept["policy"])["max_attempts"] == 9


async def test_many_tasks_go_in_one_statement(store, url, library):
    drafts = [draft(priority=n % 3) for n in range(500)]
    async with library(url) as theirs:
        assert await theirs.enqueue(store, drafts) == [d.id for d in drafts]
        await theirs.commit()
    assert len(await claim(store, 1000)) == 500


async def test_a_key_that_is_taken_answers_its_task(store, url, library):
    held = await put_one(store, key="order-7")
    async with library(url) as theirs:
        assert await theirs.enqueue(store, [draft(key="order-7")]) == [held]


async def test_a_key_of_other_work_is_refused_and_the_transaction_goes_on(
    store, url, bills, library
):
    await put_one(store, key="order-7", payload=b"1")
    async with library(url) as theirs:
        with pytest.raises(KeyConflict):
            await theirs.enqueue(store, [draft(key="order-7", payload=b"2")])
        await theirs.execute("insert into bill values (7)")
        await theirs.commit()
    assert await bills() == [7]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_key_taken_meanwhile_comes_with_advice(store, url, library, level):
    async with library(url) as theirs:
        await theirs.execute(f"set transaction isolation level {level}")
        await theirs.execute("select 1")
        await put_one(store, key="order-7")
        with pytest.raises(StoreError, match="begin the transaction again") as told:
            await theirs.enqueue(store, [draft(key="order-7", payload=SECRET)])
        await theirs.rollback()
    cause: Any = told.value.__cause__
    assert cause.sqlstate == "40001"
    assert "4111" not in "".join(traceback.format_exception(told.value))


async def test_an_id_used_before_is_refused(store, url, library):
    used = draft()
    await store.enqueue([used])
    async with library(url) as theirs:
        with pytest.raises(InvalidInput, match="used before"):
            await theirs.enqueue(store, [used])
        with pytest.raises(StoreError, match="roll it back and begin again"):
            await theirs.enqueue(store, [draft()])
        await theirs.rollback()
        await theirs.enqueue(store, [draft()])
        await theirs.commit()
    assert len(await claim(store)) == 2


async def test_another_database_is_refused(store, library, postgres_current):
    async with library(postgres_current.url) as theirs:
        with pytest.raises(InvalidInput, match="of this store is not"):
            await theirs.enqueue(store, [draft()])
        await theirs.execute("select 1")


async def test_hints_arrive_with_the_commit_and_not_before(store, url, library):
    async with _listening(url, channel_of("holdfast")) as heard, library(url) as theirs:
        await theirs.enqueue(store, [draft(queue="mail")])
        await theirs.rollback()
        await theirs.enqueue(store, [draft(queue="b"), draft(queue="a"), draft(queue="b")])
        await put_one(store)  # a round trip of another connection: nothing has come
        assert heard.empty()
        await theirs.commit()
        assert await asyncio.wait_for(heard.get(), 60) == "work:b\nwork:a"


async def test_a_cut_connection_is_told_in_plain_words(store, url, conn, library):
    async with library(url) as theirs:
        await theirs.enqueue(store, [draft()])
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and state = 'idle in transaction'"
        )
        with pytest.raises(StoreError):
            await theirs.enqueue(store, [draft()])
    assert await claim(store) == []


# ── connections that block, in asynchronous code ────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["psycopg", "connection", "session"])
async def test_the_event_loop_goes_on_while_a_blocking_connection_waits(store, url, conn, kind):
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    opened: dict[str, Callable[[], Any]] = {
        "psycopg": lambda: psycopg.connect(url),
        "connection": engine.connect,
        "session": lambda: Session(engine),
    }
    await store.enqueue([draft(key="k")])
    with opened[kind]() as theirs:
        async with conn.transaction():
            await conn.execute("lock table holdfast.task_key")
            waiting = asyncio.create_task(store.enqueue([draft(key="k")], conn=theirs))
            await _somebody_waits(conn)
            assert not waiting.done()
        await waiting
        await store.enqueue([draft()], conn=theirs)
        theirs.commit()
    engine.dispose()
    assert len(await claim(store)) == 2


async def test_a_caller_that_is_cancelled_keeps_its_connection_until_the_thread_is_through(
    store, url, conn
):
    await store.enqueue([draft(key="k")])
    with psycopg.connect(url) as theirs:
        async with conn.transaction():
            await conn.execute("lock table holdfast.task_key")
            waiting = asyncio.create_task(store.enqueue([draft(key="k")], conn=theirs))
            await _somebody_waits(conn)
            waiting.cancel()
            await asyncio.sleep(0)
            assert not waiting.done()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert theirs.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


async def test_django_is_sent_to_its_own_thread(store, url):
    proxy = django_connection(url)
    with pytest.raises(InvalidInput, match=r"write\(connection\)"):
        await store.enqueue([draft()], conn=proxy)
    prepared = await store.prepare([draft()])
    wrapper = proxy._connections["default"]
    with pytest.raises(InvalidInput, match=r"write\(connection\)"):
        await asyncio.to_thread(prepared.write, wrapper)


# ── prepare and write ───────────────────────────────────────────────────────────────────────────


async def test_what_was_prepared_may_be_written_again_after_a_rollback(store, url):
    prepared = await store.prepare([draft()])
    with psycopg.connect(url) as theirs:
        ids = prepared.write(theirs)
        theirs.rollback()
        assert prepared.write(theirs) == ids
    assert ids_of(await claim(store)) == ids


async def test_a_wrong_connection_spoils_no_right_one(store, url, postgres_current):
    prepared = await store.prepare([draft()])
    with psycopg.connect(postgres_current.url) as wrong:
        with pytest.raises(InvalidInput, match="of this store is not"):
            prepared.write(wrong)
        assert wrong.execute("select 1").fetchall() == [(1,)]
    with psycopg.connect(url) as right:
        ids = prepared.write(right)
    assert ids_of(await claim(store)) == ids


async def test_what_is_prepared_after_the_schema_was_made_anew_can_be_written(store, url, conn):
    await store.prepare([draft()])
    await conn.execute("drop schema holdfast cascade")
    await store.migrate()
    with psycopg.connect(url) as theirs:
        with pytest.raises(InvalidInput, match="of this store is not"):
            (await store.prepare([draft()])).write(theirs)
        (await store.prepare([draft()])).write(theirs)


async def test_another_server_that_was_set_up_alike_is_refused(store, url):
    prepared = await store.prepare([draft()])
    name, table, server = store._driver._home
    store._driver._home = (name, table, server + 1)
    with psycopg.connect(url) as theirs, pytest.raises(InvalidInput, match="of this store is not"):
        prepared.write(theirs)


async def test_a_role_that_may_not_ask_for_the_server_can_write(store, url, conn):
    role = f"humble_{uuid4().hex}"
    await conn.execute("revoke execute on function pg_control_system() from public")
    await conn.execute(f"create role {role}; grant usage on schema holdfast to {role}")
    await conn.execute(f"grant all on all tables in schema holdfast to {role}")
    await conn.execute(f"grant all on all sequences in schema holdfast to {role}")
    try:
        async with conn.transaction():
            await conn.execute(f"set local role {role}")
            (id,) = await store.enqueue([draft()], conn=conn)
        assert ids_of(await claim(store)) == [id]
    finally:
        await conn.execute(f"drop owned by {role}; drop role {role}")


async def test_nothing_prepared_is_nothing_written(store):
    assert (await store.prepare([])).write(None) == []


async def test_an_awaited_connection_cannot_be_written_to(store, conn):
    with pytest.raises(InvalidInput, match="has to be awaited"):
        (await store.prepare([draft()])).write(conn)


async def test_a_session_inside_run_sync_can_be_written_to(store, url):
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    prepared = await store.prepare([draft()])
    async with AsyncSession(engine) as session:
        (id,) = await session.run_sync(prepared.write)
        with pytest.raises(InvalidInput, match="pass the AsyncSession"):
            await store.enqueue([draft()], conn=session.sync_session)
        await session.commit()
    await engine.dispose()
    assert ids_of(await claim(store)) == [id]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


async def test_asyncpg_outside_a_transaction_is_refused(store, url, conn):
    await put_one(store)
    (held,) = await claim(store)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as lent:
        for theirs in (conn, lent):
            with pytest.raises(InvalidInput, match=r"`async with conn\.transaction\(\)"):
                await store.enqueue([draft()], conn=theirs)
            with pytest.raises(InvalidInput, match=r"`async with conn\.transaction\(\)"):
                await store.settle([(held.lease, DONE)], conn=theirs)
        await lent.execute("begin")
        await store.settle([(held.lease, DONE)], conn=lent)
        (id,) = await store.enqueue([draft()], conn=lent)
        await lent.execute("commit")
    assert (await store.get(held.lease.task)).status is TaskStatus.DONE
    assert ids_of(await claim(store)) == [id]


async def test_psycopg_in_autocommit_is_refused_outside_a_transaction(store, url):
    conn = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with conn:
        with pytest.raises(InvalidInput, match=r"async with conn\.transaction\(\)"):
            await store.enqueue([draft()], conn=conn)
        async with conn.transaction():
            (id,) = await store.enqueue([draft()], conn=conn)
    prepared = await store.prepare([draft()])
    with (
        psycopg.connect(url, autocommit=True) as blocking,
        pytest.raises(InvalidInput, match=r"`with conn\.transaction\(\)"),
    ):
        prepared.write(blocking)
    assert ids_of(await claim(store)) == [id]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_sqlalchemy_in_autocommit_is_refused(store, url, driver):
    engine = create_async_engine(
        url.replace("postgresql://", f"postgresql+{driver}://"), isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as conn:
        with pytest.raises(InvalidInput, match="AUTOCOMMIT"):
            await store.enqueue([draft()], conn=conn)
    await engine.dispose()
    assert await claim(store) == []


async def test_django_in_autocommit_is_refused(store, url):
    prepared = await store.prepare([draft()])

    def in_a_view() -> None:
        proxy = django_connection(url)
        try:
            prepared.write(proxy)
        finally:
            proxy.close()

    with pytest.raises(InvalidInput, match=r"transaction\.atomic\(\)"):
        await asyncio.to_thread(in_a_view)
    assert await claim(store) == []


async def test_sqlite_is_refused(store):
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(InvalidInput, match=r"by sqlite\+pysqlite"):
        await store.enqueue([draft()], conn=session)
    engine.dispose()
    conn = sqlite3.connect(":memory:")
    with pytest.raises(InvalidInput, match=r"sqlite3\.Connection.*by asyncpg, psycopg 3"):
        await store.enqueue([draft()], conn=conn)
    conn.close()


async def test_an_engine_or_anything_else_is_refused_with_what_is_accepted(store, url):
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    for thing in (engine, url, 7, store):
        with pytest.raises(InvalidInput, match="pass a connection to the same PostgreSQL"):
            await store.enqueue([draft()], conn=thing)
        with pytest.raises(InvalidInput, match="pass a connection to the same PostgreSQL"):
            (await store.prepare([draft()])).write(thing)


async def test_a_session_that_cannot_go_on_is_told_so(store, url):
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with AsyncSession(engine, autobegin=False) as session:
        with pytest.raises(StoreError, match="conn= cannot be used now") as told:
            await store.enqueue([draft()], conn=session)
    await engine.dispose()
    assert not isinstance(told.value, StoreUnreachable)


# ── by the way ──────────────────────────────────────────────────────────────────────────────────


def test_no_library_is_imported_that_the_caller_did_not_import():
    program = (
        "import sys, holdfast.stores.postgres.driver as d\n"
        "from holdfast.errors import InvalidInput\n"
        "from holdfast.stores.postgres.callers.recognise import recognise\n"
        "try: recognise(object())\n"
        "except InvalidInput: pass\n"
        "assert not {'psycopg', 'sqlalchemy', 'django'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_too_many_hints_for_one_notification_mean_everywhere():
    assert hint_payload(["work:a", "work:b", "work:a"]) == "work:a\nwork:b"
    assert hint_payload(f"work:{n:0>95}" for n in range(78)) != "work:*"
    assert hint_payload(f"work:{n:0>95}" for n in range(79)) == "work:*"


async def test_a_task_of_hundreds_of_queues_is_taken(store, url, conn):
    async with conn.transaction():
        await store.enqueue([draft(queue=f"{n:0>120}") for n in range(80)], conn=conn)
    assert len(await claim(store)) == 80


@asynccontextmanager
async def _listening(url: str, name: str) -> AsyncIterator["asyncio.Queue[str]"]:
    heard: asyncio.Queue[str] = asyncio.Queue()
    conn = await asyncpg.connect(url)
    await conn.add_listener(name, lambda *told: heard.put_nowait(told[3]))
    yield heard
    await conn.close()


async def _somebody_waits(conn: asyncpg.Connection) -> None:
    async with asyncio.timeout(60):
        while not await conn.fetchval("select count(*) from pg_locks where not granted"):
            pass
