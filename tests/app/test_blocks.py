"""Who leaves a transaction's block, by what, and when: all its rows are committed, or none."""

import asyncio
import contextlib
import gc

import pytest

from holdfast import Holdfast, HoldfastError, TaskCancelled, current, durable
from holdfast.work import transaction
from tests.app.conftest import until
from tests.app.shop import elsewhere, nothing_is_open, rows, serve

_cancelled: list[int] = []
_background: list[asyncio.Task[None]] = []
_go_on: list[asyncio.Event] = []
_heard: list[str] = []


@durable(name="half")
async def half(number: int, how: str) -> str:
    async def write() -> None:
        async with current().transaction() as conn:
            await conn.execute("insert into shop values (-100)")
            written.set()
            try:
                await conn.execute(f"select pg_sleep({60 if how == 'in a statement' else 0})")
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if how == "by an error":
                    raise ValueError("undo it") from None
                raise
            await conn.execute("insert into shop values (100)")

    async def go_on() -> None:
        await written.wait()
        await asyncio.sleep(0.1)
        await Holdfast.continue_as_new(number - 1, how)

    written = asyncio.Event()
    if number:
        other = asyncio.create_task(go_on())
        await write()
        await other
    return "end"


@pytest.mark.parametrize("how", ["between two statements", "in a statement", "by an error"])
async def test_half_a_block_is_not_committed_where_another_branch_begins_anew(shop, how, caplog):
    async with serve() as app:
        task = await app.dispatch(half.options(max_tries=1), 1, how)
        assert await task.result(timeout=60) == "end"
        assert await rows(shop) == []
        assert await nothing_is_open(shop)
        assert "without the rows of its transaction" in caplog.text


async def write_and_go_on(number: int, how: str) -> None:
    async with current().transaction() as conn:
        await conn.execute("insert into shop values ($1)", number)
        if how == "cancelled" and not _cancelled:
            _cancelled.append(number)
            await elsewhere("update holdfast.task set cancel_requested = true")
        try:
            await Holdfast.continue_as_new(number - 1, how)
        except asyncio.CancelledError:
            if how == "by an error":
                raise ValueError("undo it") from None
            if how == "defies":
                await asyncio.sleep(1)
            raise


@durable(name="in_itself")
async def in_itself(number: int, how: str) -> str:
    if number:
        await write_and_go_on(number, how)
    return "end"


@durable(name="in_a_branch")
async def in_a_branch(number: int, how: str) -> str:
    if how == "defies" and current().attempt > 1:
        return "again"
    if number:
        branch = asyncio.create_task(write_and_go_on(number, how))
        await asyncio.sleep(60)  # nobody awaits the branch
        await branch
    return "end"


@durable(name="in_a_thread")
def in_a_thread(number: int, how: str) -> str:
    if number:
        Holdfast.run(write_and_go_on(number, how))
    return "end"


PLACES = pytest.mark.parametrize(
    "place", [in_itself, in_a_branch, in_a_thread], ids=lambda f: f.name
)


@PLACES
async def test_whoever_begins_anew_in_its_block_keeps_the_rows(shop, place):
    """Those of branches and threads were lost, with a connection each."""
    async with serve() as app:
        assert await (await app.dispatch(place, 2, "")).result(timeout=60) == "end"
        assert await rows(shop) == [1, 2]
        assert await nothing_is_open(shop)


@PLACES
async def test_whoever_begins_anew_and_leaves_its_block_by_an_error_leaves_no_rows(shop, place):
    async with serve() as app:
        assert await (await app.dispatch(place, 2, "by an error")).result(timeout=60) == "end"
        assert await rows(shop) == []
        assert await nothing_is_open(shop)


@PLACES
async def test_a_block_whose_task_is_cancelled_as_it_begins_anew_is_rolled_back(shop, place):
    _cancelled.clear()
    async with serve() as app:
        task = await app.dispatch(place, 2, "cancelled")
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        if place is not in_itself:  # they come out of it only then
            await until(lambda: nothing_is_open(shop))
        assert await nothing_is_open(shop)
        assert await rows(shop) == []


async def test_a_branch_that_does_not_leave_its_block_in_time_is_tried_again(
    shop, monkeypatch, caplog
):
    monkeypatch.setattr(transaction, "_PATIENCE", 0.2)
    async with serve() as app:
        task = await app.dispatch(in_a_branch, 2, "defies")
        assert await task.result(timeout=60) == "again"
        assert "stays where it began anew" in caplog.text
        assert "without the rows of its transaction" not in caplog.text
        assert await rows(shop) == []
        assert await nothing_is_open(shop)


@durable(name="caught")
async def caught(number: int, anew: bool) -> str:
    if number:
        with contextlib.suppress(ValueError):
            async with current().transaction() as conn:
                await conn.execute("insert into shop values (1)")
                raise ValueError("undo it")
        if anew:
            await Holdfast.continue_as_new(number - 1, anew)
    return "end"


@pytest.mark.parametrize("anew", [False, True])
async def test_a_block_left_by_an_error_is_rolled_back_also_where_it_is_caught(shop, anew):
    async with serve() as app:
        assert await (await app.dispatch(caught, 1, anew)).result(timeout=60) == "end"
        assert await rows(shop) == []


@durable(name="left_behind")
async def left_behind(number: int, how: str) -> str:
    async def write() -> None:
        if how == "before it":
            await _go_on[-1].wait()
        try:
            async with current().transaction() as conn:
                await conn.execute("insert into shop values (1)")
                await _go_on[-1].wait()
        except HoldfastError as error:
            _heard.append(str(error))

    if number:
        _background.append(asyncio.create_task(write()))
        await asyncio.sleep(0.2)
        if how == "begins anew":
            await Holdfast.continue_as_new(number - 1, how)
    return "end"


@pytest.mark.parametrize("how", ["before it", "returns", "begins anew"])
async def test_who_is_in_the_block_when_the_function_has_ended_is_refused(shop, how, caplog):
    """Nobody commits it any more: it kept its connection, and heard of nothing."""
    _go_on.append(asyncio.Event())
    _heard.clear()
    async with serve() as app:
        assert await (await app.dispatch(left_behind, 1, how)).result(timeout=60) == "end"
        _go_on[-1].set()
        await _background[-1]
        assert "ended" in _heard[-1]
        warned = "without the rows of its transaction" in caplog.text
        assert warned == (how != "before it")
        assert await nothing_is_open(shop)
        assert await rows(shop) == []


@durable(name="at_once")
async def at_once() -> list[str]:
    async def write(number: int) -> None:
        async with current().transaction() as conn:
            await conn.execute("insert into shop values ($1)", number)

    found = await asyncio.gather(write(1), write(2), return_exceptions=True)
    return [str(error) for error in found if error]


async def test_of_two_branches_that_come_together_one_has_the_transaction(shop):
    """Each had one; the rows of the first were lost, and its task was done."""
    async with serve() as app:
        refused = await (await app.dispatch(at_once)).result(timeout=60)
        assert ["one transaction" in error for error in refused] == [True]
        assert await rows(shop) == [1]
        assert await nothing_is_open(shop)


@durable(name="at_the_second_try")
async def at_the_second_try() -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0), current().transaction():
            pass
    async with current().transaction() as conn:
        await conn.execute("insert into shop values (1)")
    return "end"


async def test_a_transaction_that_could_not_begin_may_begin_again(shop):
    async with serve() as app:
        assert await (await app.dispatch(at_the_second_try)).result(timeout=60) == "end"
        assert await rows(shop) == [1]


@durable(name="left_long_ago")
async def left_long_ago(number: int, how: str) -> str:
    async def write() -> None:
        try:
            await write_and_go_on(number, how)
        finally:
            await _go_on[-1].wait()

    if number:
        _background.append(asyncio.create_task(write()))
        await asyncio.sleep(60)
    return "end"


async def test_a_branch_that_has_left_its_block_is_not_waited_for(shop):
    """It held its run, its rows and its locks until it had ended, for up to a minute."""
    _go_on.append(asyncio.Event())
    async with serve() as app:
        assert await (await app.dispatch(left_long_ago, 1, "")).result(timeout=20) == "end"
        assert await rows(shop) == [1]
        _go_on[-1].set()


@durable(name="in_a_generator")
async def in_a_generator(number: int, how: str) -> str:
    async def conns():
        async with current().transaction() as conn:
            yield conn

    async def write() -> None:
        held = conns()
        async for conn in held if how.startswith("held") else conns():
            await conn.execute("insert into shop values ($1)", number)
            await Holdfast.continue_as_new(number - 1, how)

    if number and how == "held in a branch":
        await asyncio.create_task(write())
    elif number:
        await write()
    return "end"


@pytest.mark.parametrize("how", ["let go", "held", "held in a branch"])
async def test_nobody_waits_for_a_generator_that_is_left_open_in_the_block(shop, how, caplog):
    """The function waited for itself, for a minute; and ran again, where it held the generator."""
    async with serve() as app:
        assert await (await app.dispatch(in_a_generator, 1, how)).result(timeout=20) == "end"
        assert "without the rows of its transaction" in caplog.text
        gc.collect()
        await until(lambda: nothing_is_open(shop))
        assert await rows(shop) == []
