"""Business rows and the task's completion: together, or not at all."""

import contextlib
import logging
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast import Holdfast, NonRetryable, TaskFailed, current, durable
from tests.app.conftest import until
from tests.servers import fresh_database

_fence_off: list[str] = []


@durable(name="order")
async def order(number: int, fail: str = "") -> int:
    async with current().transaction() as conn:
        await conn.execute("insert into shop values ($1)", number)
        if fail == "inside":
            raise NonRetryable("inside")
        if fail == "says":
            logging.getLogger("shop").info("inside")
    if fail == "says":
        logging.getLogger("shop").info("after")
    if fail == "after":
        raise NonRetryable("after")
    if fail == "lost":
        thief = await asyncpg.connect(_fence_off[-1])
        await thief.execute("delete from holdfast.lease")
        await thief.close()
    return number


@durable(name="twice")
async def twice() -> None:
    async with current().transaction():
        pass
    async with current().transaction():
        pass


@pytest.fixture
async def shop(postgres_current) -> AsyncIterator[asyncpg.Connection]:
    with fresh_database(postgres_current) as url:
        _fence_off.append(url)
        conn = await asyncpg.connect(url)
        await conn.execute("create table shop (number int)")
        yield conn
        await conn.close()


async def rows(shop: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await shop.fetch("select number from shop order by 1")]


def serve():
    return Holdfast.bootstrap(_fence_off[-1], serve=True, poll_interval=0.02, lease_duration="5s")


async def test_both_are_committed_together(shop):
    async with serve() as app:
        task = await app.dispatch(order, 1)
        assert await task.result(timeout=60) == 1
        assert await rows(shop) == [1]
        assert [attempt.ended for attempt in await attempts(app, task)] == ["done"]


@pytest.mark.parametrize("where", ["inside", "after"])
async def test_an_error_rolls_the_rows_back(shop, where):
    async with serve() as app:
        task = await app.dispatch(order, 1, where)
        with pytest.raises(TaskFailed, match=where):
            await task.result(timeout=60)
        assert await rows(shop) == []


async def test_a_lost_lease_rolls_both_back(shop):
    async with serve() as app:
        task = await app.dispatch(order, 1, "lost")
        await until(lambda: was_refused(app))
        assert await rows(shop) == []
        assert (await task.state()).status == "pending"


async def test_a_task_has_one_transaction(shop):
    async with serve() as app:
        task = await app.dispatch(twice.options(max_tries=1))
        with pytest.raises(TaskFailed, match="one transaction"):
            await task.result(timeout=60)


async def test_sqlite_says_that_it_cannot(tmp_path):
    async with Holdfast.bootstrap(f"sqlite:///{tmp_path}/a.db", serve=True) as app:
        task = await app.dispatch(order.options(max_tries=1), 1)
        with pytest.raises(TaskFailed, match="needs PostgreSQL"):
            await task.result(timeout=60)


async def test_what_the_function_said_last_is_kept(shop, caplog):
    caplog.set_level(logging.INFO, "shop")
    async with serve() as app:
        task = await app.dispatch(order, 1, "says")
        assert await task.result(timeout=60) == 1
        store = (await app.home.client()).store
        assert [line.message for line in await store.logs(task.id)] == ["inside", "after"]


async def attempts(app, task):
    return await (await app.home.client()).store.attempts(task.id)


async def was_refused(app):
    store = (await app.home.client()).store
    return any(event.kind == "refused" for event in await store.events())


@durable(name="swallows")
async def swallows() -> None:
    async with current().transaction() as conn:
        with contextlib.suppress(asyncpg.PostgresError):
            await conn.execute("insert into nowhere values (1)")


async def test_a_transaction_that_cannot_be_committed_is_a_failure_like_others(shop):
    async with serve() as app:
        task = await app.dispatch(swallows.options(max_tries=1))
        with pytest.raises(TaskFailed, match="transaction"):
            await task.result(timeout=60)
        assert (await task.state()).status == "failed"
