"""With Redis for hints, all other ways are heard as before. Nobody polls here within the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from holdfast import Holdfast, durable
from holdfast.observer import Observer
from tests.servers import free_port, fresh_database

REDIS = Holdfast.notifications.RedisBackend
WITHIN = 8.0  # seconds; a poll comes after an hour


class Rests(Observer):
    """Has the worker found nothing? Then only a hint can wake it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def rested(self, seconds: float) -> None:
        self.begun.set()


@durable(name="hints.add")
async def add(a: int, b: int) -> int:
    return a + b


@asynccontextmanager
async def resting(url: str, redis: str | None) -> AsyncIterator[Holdfast]:
    """An app whose worker has found nothing."""
    rests = Rests()
    backend = REDIS(redis) if redis else None
    async with Holdfast(url, notification_backend=backend, observers=[rests]) as app:
        lifecycle = app.create_worker_lifecycle("w")
        working = asyncio.create_task(
            app.serve(lifecycle=lifecycle, poll_interval=3600, poll_interval_max=3600)
        )
        async with asyncio.timeout(60):
            await rests.begun.wait()
        yield app
        lifecycle.request_drain()
        await working


@pytest.fixture
def database(postgres_current):
    with fresh_database(postgres_current) as url:
        yield url


async def test_what_a_callers_transaction_dispatches_is_heard_with_its_commit(database, valkey):
    async with resting(database, valkey.url) as app:
        conn = await asyncpg.connect(database)
        async with conn.transaction():
            task = await app.dispatch(add.options(conn=conn), 1, 2)
        assert await task.result(timeout=WITHIN) == 3
        await conn.close()


async def test_who_dispatches_without_redis_is_heard(url, valkey):
    async with resting(url, valkey.url), Holdfast(url) as other:
        task = await other.dispatch(add, 1, 2)
        assert await task.result(timeout=WITHIN) == 3


async def test_who_serves_without_redis_hears_those_who_have_it(url, valkey):
    other = Holdfast(url, notification_backend=REDIS(valkey.url))
    async with resting(url, None), other:
        task = await other.dispatch(add, 1, 2)
        assert await task.result(timeout=WITHIN) == 3


async def test_while_redis_is_dead_a_worker_hears_of_what_its_own_process_dispatches(url):
    async with resting(url, f"redis://127.0.0.1:{free_port()}") as app:
        task = await app.dispatch(add, 1, 2)
        assert await task.result(timeout=WITHIN) == 3


async def test_what_is_enqueued_at_a_sql_prompt_is_heard_with_its_commit(database):
    async with resting(database, None) as app:
        conn = await asyncpg.connect(database)
        task = await conn.fetchval("select holdfast.enqueue('hints.add', args => '[1, 2]')")
        await conn.close()
        assert (await app.wait_for(task, timeout=WITHIN)).result == b"3"
