"""Work happens when the test says so, at the time that the test's clock shows."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast import Holdfast, HoldfastError, InvalidInput, RetryPolicy, TaskFailed, current
from holdfast.testing import AppUnderTest

done: list[object] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@Holdfast.durable
async def note(what: str) -> str:
    done.append(what)
    return what


@Holdfast.durable
def note_in_a_thread(what: str) -> str:
    done.append((what, current().now()))
    return what


@Holdfast.durable(retry_policy=RetryPolicy(max_attempts=3, initial_delay=60.0, jitter=0.0))
async def fail_once() -> int:
    done.append(current().attempt)
    if current().attempt == 1:
        raise ValueError("not yet")
    return current().attempt


@Holdfast.durable(queue="elsewhere", tags=["x"], requires=["gpu"], max_concurrent=1)
async def picky(what: str) -> None:
    done.append(what)


@Holdfast.durable
async def nap() -> None:
    await Holdfast.sleep("0.5s")  # which a real worker would wait for in memory


@Holdfast.durable
async def three_naps() -> list[timedelta]:
    begun = current().now()
    naps = []
    for _ in range(3):
        await Holdfast.sleep("20m")
        naps.append(current().now() - begun)
    return naps


@Holdfast.durable
async def family(n: int) -> list[str]:
    first = await note("first")
    return [first, *await note.map([f"child {i}" for i in range(n)])]


@Holdfast.durable
async def approval() -> str:
    try:
        return str(await Holdfast.wait_for_signal("answer", timeout="2d"))
    except TimeoutError:
        return "nobody answered"


@Holdfast.durable
async def raced() -> str:
    try:
        async with asyncio.timeout(3600):
            await Holdfast.sleep("1d")
    except TimeoutError:
        return "too late"
    return "in time"


meeting: list[asyncio.Event] = []


@Holdfast.durable
async def meet(me: int, other: int) -> int:
    meeting[me].set()
    await meeting[other].wait()
    return me


async def test_nothing_runs_before_the_test_says_so(app: AppUnderTest):
    task = await app.dispatch(note, "a")
    assert (await task.state()).status == "pending"
    assert done == []
    assert await app.drain() == 1
    assert await task.result(timeout=30) == "a"
    assert await app.drain() == 0


async def test_tasks_run_one_after_the_other_in_their_order(app: AppUnderTest):
    await app.dispatch_many([note.call(str(i)) for i in range(20)])
    assert await app.drain() == 20
    assert done == [str(i) for i in range(20)]


async def test_several_at_once_on_request(app: AppUnderTest):
    meeting[:] = [asyncio.Event(), asyncio.Event()]
    await app.dispatch_many([meet.call(0, 1), meet.call(1, 0)])
    async with asyncio.timeout(60):
        assert await app.drain(max_concurrency=2) == 2


async def test_queues_tags_requirements_and_limits_hold_nothing_back_for_ever(app: AppUnderTest):
    await app.dispatch_many([picky.call(str(i)) for i in range(3)])
    assert await app.drain(max_concurrency=10) == 3
    assert sorted(map(str, done)) == ["0", "1", "2"]


async def test_what_is_delayed_runs_when_the_clock_has_moved_that_far(app: AppUnderTest):
    await app.dispatch(note.options(delay="1h"), "later")
    await app.advance("59m 59s")
    assert await app.drain() == 0
    await app.advance(1)
    assert await app.drain() == 1


async def test_retries_follow_the_clock(app: AppUnderTest):
    task = await app.dispatch(fail_once)
    assert await app.drain() == 1
    assert await app.drain() == 0
    await app.advance("1m")
    assert await app.drain() == 1
    assert await task.result(timeout=30) == 2


async def test_sleep_follows_the_clock(app: AppUnderTest):
    task = await app.dispatch(three_naps)
    assert await app.drain() == 0
    for _ in range(3):
        assert (await task.state()).status == "waiting"
        await app.advance("19m")
        assert await app.drain() == 0
        await app.advance("1m")
        await app.drain()
    assert await task.result(timeout=30) == [timedelta(minutes=20 * i) for i in (1, 2, 3)]


async def test_short_sleeps_follow_the_clock_too(app: AppUnderTest):
    task = await app.dispatch(nap)
    await app.drain()
    assert (await task.state()).status == "waiting"
    await app.advance("1s")
    assert await app.drain() == 1


async def test_run_for_runs_everything_at_its_time(app: AppUnderTest):
    begun = app.now
    task = await app.dispatch(three_naps)
    assert await app.run_for("59m") == 0
    assert await app.run_for("1h") == 1
    naps = await task.result(timeout=30)
    assert [round(nap.total_seconds() / 60) for nap in naps] == [20, 40, 60]
    assert app.now - begun == timedelta(minutes=119)


async def test_a_put_down_function_counts_as_no_attempt(app: AppUnderTest):
    task = await app.dispatch(family, 3)
    assert await app.drain() == 5
    assert await task.result(timeout=30) == ["first", "child 0", "child 1", "child 2"]


@pytest.mark.parametrize(("after", "result"), [("1d", "yes"), ("2d", "nobody answered")])
async def test_signals_and_their_timeouts(app: AppUnderTest, after: str, result: str):
    task = await app.dispatch(approval)
    await app.drain()
    await app.advance(after)
    if result == "yes":
        await app.send_signal(task, "answer", "yes")
    assert await app.drain() == 1
    assert await task.result(timeout=30) == result


async def test_timeouts_of_asyncio_follow_the_clock(app: AppUnderTest):
    task = await app.dispatch(raced)
    await app.drain()
    await app.advance("1h")
    await app.drain()
    assert await task.result(timeout=30) == "too late"


async def test_what_expired_is_not_run(app: AppUnderTest):
    task = await app.dispatch(note.options(expires="1h"), "stale")
    await app.advance("2h")
    await app.drain()
    with pytest.raises(TaskFailed, match="Expired"):
        await task.result(timeout=30)
    assert done == []


async def test_a_waiting_function_can_be_cancelled(app: AppUnderTest):
    task = await app.dispatch(approval)
    await app.drain()
    await task.cancel()
    await app.drain()
    assert (await task.state()).status == "cancelled"


async def test_functions_see_the_clock_of_the_test(app: AppUnderTest):
    await app.advance("365d")
    await app.dispatch(note_in_a_thread, "far")
    assert await app.drain() == 1
    assert done == [("far", app.now)]


@pytest.mark.parametrize("slots", [0, -1, None, "x", 1.5, True])
async def test_nothing_is_drained_by_no_slots(app: AppUnderTest, slots: Any):
    for work in (app.drain(max_concurrency=slots), app.run_for("1s", max_concurrency=slots)):
        with pytest.raises(InvalidInput, match="max_concurrency must be a whole number from 1 on"):
            await work


async def test_one_drain_at_a_time(app: AppUnderTest):
    meeting[:] = [asyncio.Event(), asyncio.Event()]
    await app.dispatch(meet, 0, 1)
    draining = asyncio.create_task(app.drain())
    await meeting[0].wait()
    with pytest.raises(HoldfastError, match="drains already"):
        await app.drain()
    meeting[1].set()
    assert await draining == 1


async def test_a_drain_that_is_cancelled_hands_back_what_it_runs(app: AppUnderTest):
    meeting[:] = [asyncio.Event(), asyncio.Event()]
    task = await app.dispatch(meet, 0, 1)
    draining = asyncio.create_task(app.drain())
    await meeting[0].wait()
    draining.cancel()
    await asyncio.wait({draining})
    assert (await task.state()).status == "pending"
    meeting[1].set()
    assert await app.drain() == 1


def test_code_that_does_not_await(app: AppUnderTest):
    task = app.dispatch_sync(family, 2)
    assert app.run_sync(app.drain()) == 4
    assert app.run_sync(task.result(timeout=30)) == ["first", "child 0", "child 1"]


async def test_an_app_of_ones_own_lives_here_for_the_test(app: AppUnderTest):
    mine = Holdfast("postgresql://nobody@nowhere.invalid/none")
    home = mine.home

    @mine.durable
    async def own() -> str:
        return "mine"

    app.use(mine)
    app.use(mine)
    task = await mine.dispatch(own)
    assert await app.drain() == 1
    assert await task.result(timeout=30) == "mine"
    app.end()
    assert mine.home is home
    with pytest.raises(InvalidInput, match=r"use\(\) takes a Holdfast"):
        app.use("mine")  # type: ignore[arg-type]


async def test_functions_with_a_cron_run_at_their_times(holdfast: AppUnderTest) -> None:
    @holdfast.durable(cron="0 */6 * * *", timezone="Europe/Berlin")
    async def report() -> None:
        done.append(current().now())

    assert await holdfast.run_for("1d") == 4
    times = [at for at in done if isinstance(at, datetime)]
    assert all(b - a == timedelta(hours=6) for a, b in pairwise(times))
    await holdfast.advance("1d")  # nobody was there: it is made up for once
    assert await holdfast.drain() == 1
    assert await holdfast.drain() == 0


async def test_a_cron_beside_a_function_that_sleeps(holdfast: AppUnderTest) -> None:
    @holdfast.durable(cron="*/10 * * * *")
    async def tick() -> None:
        done.append("tick")

    task = await holdfast.dispatch(three_naps)
    await holdfast.run_for("65m")
    assert (await task.result())[-1] < timedelta(minutes=61)
    assert len(done) in (6, 7)


async def test_what_an_expired_function_had_begun_is_cancelled(app: AppUnderTest):
    @app.durable
    async def child() -> None:
        await Holdfast.sleep("1h")
        done.append("child")

    @app.durable
    async def parent() -> None:
        await child()

    task = await app.dispatch(parent.options(expires="30m"))
    await app.run_for("3h")
    with pytest.raises(TaskFailed, match="Expired"):
        await task.result(timeout=30)
    assert done == []
    (left,) = (one for one in (await app.list_tasks()).tasks if one.id != task.id)
    assert left.status == "cancelled"


async def test_what_a_run_that_begins_anew_had_begun_is_cancelled(app: AppUnderTest):
    @app.durable
    async def child() -> None:
        await Holdfast.sleep("1d")

    @app.durable
    async def parent(run: int) -> None:
        if run == 1:
            branch = asyncio.create_task(child())
            await Holdfast.sleep("1m")
            await Holdfast.continue_as_new(2)
            await branch
        await Holdfast.sleep("1h")

    task = await app.dispatch(parent, 1)
    await app.run_for("2m")
    assert (await task.state()).status == "waiting"
    (left,) = (one for one in (await app.list_tasks()).tasks if one.id != task.id)
    assert left.status == "cancelled"


@pytest.mark.parametrize("how", ["fails", "is cancelled as it begins anew"])
async def test_what_the_next_life_has_taken_up_is_not_cancelled(
    app: AppUnderTest, monkeypatch: pytest.MonkeyPatch, how: str
):
    lives: list[str] = []
    left: list[str] = []
    store: Any = (await app.home.client()).store

    @app.durable
    async def child() -> str:
        await Holdfast.sleep("1h")
        return "done"

    @app.durable(retry_policy=RetryPolicy(max_attempts=1))
    async def parent() -> str:
        branch = asyncio.create_task(child())
        await Holdfast.sleep("1m")
        lives.append("life")
        if lives == ["life"]:
            if how == "fails":
                raise ValueError(how)
            await store._driver.call("request_cancel", ids=[task.id], left=False)
            await Holdfast.continue_as_new()
        return await branch

    real = store.cancel

    async def cancel(tasks: Any, **asked: Any) -> Any:
        assert await store.retry([task.id])  # in that very moment
        answer = await real(tasks, **asked)
        left.extend([(await store.get(id)).status for id in tasks])
        return answer

    monkeypatch.setattr(store, "cancel", cancel)
    task = await app.dispatch(parent)
    await app.run_for("2h")
    assert left == ["waiting"]
    assert await task.result(timeout=30) == "done"
