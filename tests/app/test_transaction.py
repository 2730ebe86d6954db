"""Business rows and the task's completion: together, or not at all."""

import asyncio
import contextlib
import logging

import asyncpg
import pytest

from holdfast import (
    Holdfast,
    HoldfastError,
    NonRetryable,
    RetryPolicy,
    TaskCancelled,
    TaskFailed,
    current,
    durable,
)
from holdfast.work import slots
from tests.app.conftest import until
from tests.app.shop import elsewhere, nothing_is_open, rows, serve

_cancelled: list[int] = []
_leaving: list[int] = []
_go_on: list[asyncio.Event] = []
_heard: list[str] = []


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
        await elsewhere("delete from holdfast.lease")
    return number


@durable(name="twice")
async def twice() -> None:
    async with current().transaction():
        pass
    async with current().transaction():
        pass


@durable(name="count_down")
async def count_down(number: int, refuse: bool = False) -> str:
    if number:
        async with current().transaction() as conn:
            await conn.execute("insert into shop values ($1)", number)
            if refuse:
                await conn.execute("insert into strict values (1), (1)")
        await Holdfast.continue_as_new(number - 1, refuse)
    return "end"


@durable(name="interrupted")
async def interrupted(number: int) -> str:
    if number:
        async with current().transaction() as conn:
            await conn.execute("insert into shop values ($1)", number)
        if number == 2 and not _cancelled:
            _cancelled.append(number)
            await elsewhere("update holdfast.task set cancel_requested = true")
        await Holdfast.continue_as_new(number - 1)
    return "end"


@durable(name="inside")
async def inside(number: int) -> str:
    if number:
        async with current().transaction() as conn:
            await conn.execute("insert into shop values ($1)", number)
            await Holdfast.continue_as_new(number - 1)
    return "end"


@durable(name="leaves_slowly", timeout="1s")
async def leaves_slowly(number: int) -> str:
    if number:
        async with current().transaction() as conn:
            await conn.execute("insert into shop values ($1)", number)
        try:
            await Holdfast.continue_as_new(number - 1)
        finally:
            _leaving.append(number)
            await asyncio.sleep(2)
    return "end"


@durable(name="child")
async def child() -> int:
    await Holdfast.sleep(1)
    return 5


@durable(name="refused_once", retry_policy=RetryPolicy(max_attempts=3, initial_delay=0.01))
async def refused_once(how: str) -> str:
    branch = asyncio.create_task(child())
    await Holdfast.sleep(0.1)
    if current().attempt == 1:
        async with current().transaction() as conn:
            await conn.execute("insert into strict values (1), (1)")
        if how == "returns":
            return "in vain"
        await Holdfast.continue_as_new("in vain")
    return f"child {await branch}"


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


async def test_each_run_that_begins_anew_commits_its_rows(shop):
    """They were rolled back, and nobody said so."""
    async with serve() as app:
        task = await app.dispatch(count_down, 3)
        assert await task.result(timeout=60) == "end"
        assert await rows(shop) == [1, 2, 3]
        assert (await app.state_of(task)).try_count == 1


async def test_a_run_whose_rows_are_refused_by_the_commit_does_not_begin_anew(shop):
    await shop.execute("create table strict (n int, unique (n) deferrable initially deferred)")
    async with serve() as app:
        task = await app.dispatch(count_down.options(max_tries=1), 3, refuse=True)
        with pytest.raises(TaskFailed, match="duplicate key"):
            await task.result(timeout=60)
        assert await rows(shop) == []


async def test_a_run_that_is_cancelled_as_it_begins_anew_leaves_no_rows(shop):
    """They were committed, and once more by its next life."""
    async with serve() as app:
        task = await app.dispatch(interrupted, 2)
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        assert await rows(shop) == []
        assert await app.retry(task)
        assert await task.result(timeout=60) == "end"
        assert await rows(shop) == [1, 2]


async def test_a_run_may_begin_anew_inside_the_block(shop):
    async with serve() as app:
        assert await (await app.dispatch(inside, 2)).result(timeout=60) == "end"
        assert await rows(shop) == [1, 2]


async def test_whoever_is_slow_to_leave_begins_anew_with_its_rows(shop, monkeypatch):
    monkeypatch.setattr(slots, "_STOPPING", 0.2)
    async with serve() as app:
        assert await (await app.dispatch(leaves_slowly, 2)).result(timeout=60) == "end"
        assert await rows(shop) == [1, 2]


@pytest.mark.parametrize("how", ["returns", "begins anew"])
async def test_a_refused_commit_leaves_the_children_to_the_next_attempt(shop, how):
    await shop.execute("create table strict (n int, unique (n) deferrable initially deferred)")
    async with serve() as app:
        task = await app.dispatch(refused_once, how)
        assert await task.result(timeout=60) == "child 5"


async def _is_leaving() -> bool:
    return bool(_leaving)


async def test_whoever_is_cancelled_on_its_way_out_leaves_no_rows(shop):
    _leaving.clear()
    async with serve() as app:
        task = await app.dispatch(leaves_slowly, 2)
        await until(_is_leaving)
        await app.cancel(task)
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        assert await nothing_is_open(shop)
        assert await rows(shop) == []


@durable(name="defies", timeout=1.0)
async def defies(where: str) -> int:
    async def stay() -> None:
        if current().attempt == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await _go_on[-1].wait()

    if where == "before":
        await stay()
    try:
        async with current().transaction() as conn:
            await conn.execute("update shop set number = number + 1")
            if where == "inside":
                await stay()
    except HoldfastError as error:
        _heard.append(str(error))
    if where == "after":
        await stay()
    return current().attempt


async def test_whoever_is_given_up_leaves_no_transaction_that_holds_up_its_next_try(
    shop, monkeypatch
):
    monkeypatch.setattr(slots, "_STOPPING", 0.2)
    await shop.execute("insert into shop values (1)")
    _go_on.append(asyncio.Event())
    async with serve() as app:
        task = await app.dispatch(defies.options(max_tries=2), "after")
        assert await task.result(timeout=30) == 2
        assert await nothing_is_open(shop)
        _go_on[-1].set()
    assert await rows(shop) == [2]


@pytest.mark.parametrize("where", ["inside", "before"])
async def test_whoever_is_given_up_and_goes_on_hears_that_it_has_no_transaction(
    shop, monkeypatch, caplog, where
):
    monkeypatch.setattr(slots, "_STOPPING", 0.2)
    await shop.execute("insert into shop values (1)")
    _go_on.append(asyncio.Event())
    _heard.clear()
    async with serve() as app:
        task = await app.dispatch(defies, where)
        await until(lambda: is_logged(caplog, "goes on although"))
        _go_on[-1].set()
        assert await task.result(timeout=30) > 1
    assert ["the attempt" in error and "ended" in error for error in _heard] == [True]
    assert await rows(shop) == [2]


async def is_logged(caplog, words: str) -> bool:
    return words in caplog.text
