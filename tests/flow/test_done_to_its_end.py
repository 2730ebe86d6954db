"""What is dispatched or signalled just as its branch is given up, or its attempt fails: it is done
to its end and known, or not begun; never done again under another name."""

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from holdfast import Holdfast, TaskCancelled, TaskFailed, current
from holdfast.flow import effects
from holdfast.store import Store
from holdfast.work import slots
from tests.flow.acts import ONCE, SOON, journal, number_of
from tests.flow.slowly import slow_commits
from tests.work.bench import Bench, until


class SlowToAnswer:
    """It dispatches and signals `before` seconds later, and says so `after` more."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before, self.after = 0.0, 0.3

    @classmethod
    async def of(cls, bench: Bench) -> "SlowToAnswer":
        client = await bench.app.home.client()
        slow = cls(client.store)
        client.store = cast(Store, slow)
        return slow

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def enqueue(self, *args: Any, **more: Any) -> Any:
        await asyncio.sleep(self.before)
        found = await self._store.enqueue(*args, **more)
        await asyncio.sleep(self.after)
        return found

    async def send_signal(self, *args: Any, **more: Any) -> Any:
        found = await self._store.send_signal(*args, **more)
        await asyncio.sleep(self.after)
        return found


@pytest.mark.parametrize("how", ["TaskGroup", "gather", "timeout"])
async def test_what_is_given_up_while_it_is_done_is_not_done_again(bench: Bench, how: str) -> None:
    """It was done, and not known: the next try did it under another name."""
    failing = True

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def fail() -> None:
        nonlocal failing
        await asyncio.sleep(0.1)
        failed, failing = failing, False
        if failed:
            raise ValueError("once")

    async def tell() -> None:
        await bench.app.dispatch(other)

    async def call() -> None:
        await bench.app.send_signal(current().task_id, "told", 1)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> list[int]:
        await Holdfast.step("first", str, 1)
        if how == "TaskGroup":
            async with asyncio.TaskGroup() as group:
                group.create_task(tell())
                group.create_task(call())
                group.create_task(Holdfast.step("fail", fail))
        elif how == "gather":
            await asyncio.gather(tell(), call(), Holdfast.step("fail", fail))
        else:
            try:
                async with asyncio.timeout(0.1):
                    await asyncio.gather(tell(), call())
            except TimeoutError:
                await Holdfast.step("fail", fail)
        heard = [await Holdfast.wait_for_signal("told")]
        try:
            heard.append(await Holdfast.wait_for_signal("told", timeout=0.2))
        except TimeoutError:
            return heard
        return heard

    await SlowToAnswer.of(bench)
    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=30) == [1]
    assert number_of(bench, "other") == 1


async def test_a_branch_that_goes_on_beside_a_failure_dispatches_nothing_unknown(
    bench: Bench,
) -> None:
    failing = True

    @bench.app.durable(name="other", queue="nobody")
    async def other(i: int) -> None: ...

    async def fail() -> None:
        nonlocal failing
        failed, failing = failing, False
        if failed:
            raise ValueError("once")

    async def tell() -> None:
        for i in range(3):
            await bench.app.dispatch(other, i)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        await asyncio.gather(tell(), Holdfast.step("fail", fail))

    await SlowToAnswer.of(bench)
    async with bench.worker():
        await (await bench.app.dispatch(flow)).result(timeout=30)
    assert number_of(bench, "other") == 3


async def test_what_begins_while_its_grounds_are_written_is_known_or_not_done(
    bench: Bench,
) -> None:
    failing = True

    @bench.app.durable(name="other", queue="nobody")
    async def other(i: int) -> None: ...

    async def tell() -> None:
        await bench.app.dispatch(other, 1)
        current().random("decides")
        await bench.app.dispatch(other, 2)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        nonlocal failing
        await Holdfast.step("first", str, 1)
        telling = asyncio.ensure_future(tell())
        failed, failing = failing, False
        if failed:
            await asyncio.sleep(0.2)
            raise ValueError("once")
        await telling

    await slow_commits(bench, of="value", by=0.4)
    async with bench.worker():
        await (await bench.app.dispatch(flow)).result(timeout=30)
    assert number_of(bench, "other") == 2


async def test_no_function_is_put_down_in_the_middle_of_a_dispatch(bench: Bench) -> None:
    """Also where its worker is about to leave: it waits for what is under way."""

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def tell() -> None:
        await bench.app.dispatch(other)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        await asyncio.gather(tell(), Holdfast.wait_for_signal("go"))

    async def is_made() -> bool:
        return number_of(bench, "other") == 1

    task = await bench.app.dispatch(flow)
    slow = await SlowToAnswer.of(bench)
    slow.after = 4.0
    async with bench.worker():
        await until(is_made)
    slow.after = 0.0
    async with bench.worker():
        await bench.app.send_signal(task, "go")
        await task.result(timeout=30)
    assert number_of(bench, "other") == 1


async def test_a_dispatch_that_hangs_ends_with_its_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next attempt dispatches, and then the old one does."""
    monkeypatch.setattr(effects, "_PATIENCE", 0.2)
    monkeypatch.setattr(slots, "_STOPPING", 1.0)
    slow = await SlowToAnswer.of(bench)
    seconds = [2.0]

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON, timeout=0.3)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        slow.before = seconds.pop() if seconds else 0.0
        await bench.app.dispatch(other)

    task = await bench.app.dispatch(flow)
    slow.after = 0.0
    async with bench.worker():
        await task.result(timeout=30)
        await asyncio.sleep(2.0)
    assert number_of(bench, "other") == 1


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_branch_leaves_when_its_dispatch_has_ended_however_often_it_is_cancelled(
    bench: Bench, no_linger: None, times: int
) -> None:
    """The second time it left at once, and its function stayed `running` for good."""

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def tell() -> None:
        await bench.app.dispatch(other)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        telling = asyncio.create_task(tell())
        for _ in range(times):
            await asyncio.sleep(0.05)
            telling.cancel()
        await asyncio.wait({telling})
        await asyncio.sleep(0.5)
        await Holdfast.sleep(0.1)

    await SlowToAnswer.of(bench)
    async with bench.worker(drain_timeout=1.0):
        await (await bench.app.dispatch(flow)).result(timeout=15)
    assert number_of(bench, "other") == 1


@pytest.mark.parametrize("turns", [1, 2])
async def test_a_branch_that_is_cancelled_at_once_leaves_where_it_left_in_a_replay(
    bench: Bench, no_linger: None, turns: int
) -> None:
    """It left in the first turn of the known dispatch, before a sleep that had ended first."""

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def tell() -> None:
        await bench.app.dispatch(other)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> str:
        await Holdfast.step("first", str, 1)
        telling = asyncio.create_task(tell())
        sleeping = asyncio.create_task(Holdfast.sleep(0.1))
        for _ in range(turns):
            await asyncio.sleep(0)
        telling.cancel()
        done, _ = await asyncio.wait({telling, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        first = "slept" if sleeping in done else "told"
        await Holdfast.step(first, int)
        await asyncio.wait({telling, sleeping})
        await Holdfast.sleep(0.1)
        return first

    await SlowToAnswer.of(bench)
    async with bench.worker():
        assert await (await bench.app.dispatch(flow)).result(timeout=15) == "slept"
    assert number_of(bench, "other") == 1


async def test_the_same_timeout_ends_a_dispatch_in_a_replay(bench: Bench, no_linger: None) -> None:
    """Both are over before it has ended. In the replay the inner one ended it, alone."""

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> str:
        await Holdfast.step("first", str, 1)
        which = "none"
        try:
            async with asyncio.timeout(0.2):
                try:
                    async with asyncio.timeout(0.1):
                        await bench.app.dispatch(other)
                except TimeoutError:
                    which = "inner"
        except TimeoutError:
            which = "outer"
        await Holdfast.step(which, int)
        await Holdfast.sleep(0.1)
        return which

    await SlowToAnswer.of(bench)
    async with bench.worker(drain_timeout=1.0):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=15) == "outer"
    assert await bench.ends(task) == ["waiting", "done"]
    assert number_of(bench, "other") == 1


async def test_our_patience_with_a_dispatch_is_no_timer_of_the_function(
    bench: Bench, no_linger: None
) -> None:
    """It was recorded where another branch asked meanwhile, and the replay stood still for it."""

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def tell() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await bench.app.dispatch(other)

    async def ask() -> None:
        await asyncio.sleep(0.2)
        await Holdfast.step("asked", int)
        await Holdfast.sleep(0.2)

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        await asyncio.gather(tell(), ask())
        await Holdfast.sleep(0.1)

    await SlowToAnswer.of(bench)
    async with bench.worker():
        task = await bench.app.dispatch(flow)
        await task.result(timeout=30)
    assert [name for name in await journal(bench, task) if "Effects" in name] == []


async def test_a_dispatch_may_take_long_where_its_function_goes_on_without_it(
    bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut short, not known, and done again by the replay."""
    monkeypatch.setattr(effects, "_PATIENCE", 0.2)

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await bench.app.dispatch(other)
        await Holdfast.sleep(0.5)

    slow = await SlowToAnswer.of(bench)
    slow.after = 1.0
    async with bench.worker():
        task = await bench.app.dispatch(flow)
        await task.result(timeout=30)
    assert await bench.ends(task) == ["waiting", "done"]
    assert number_of(bench, "other") == 1


@pytest.mark.parametrize("how", ["timeout", "cancel"])
@pytest.mark.parametrize("by", ["timeout", "group"])
async def test_a_dispatch_that_was_cut_short_before_ends_with_its_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str, by: str
) -> None:
    monkeypatch.setattr(effects, "_PATIENCE", 0.2)
    cut = asyncio.Event()

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def tell() -> None:
        await bench.app.dispatch(other)

    async def fail() -> None:
        await asyncio.sleep(0.1)
        raise ValueError("no")

    @bench.app.durable(name="flow", retry_policy=ONCE, timeout=1.0 if how == "timeout" else None)
    async def flow() -> None:
        await Holdfast.step("first", str, 1)
        asyncio.get_running_loop().call_later(0.2, cut.set)
        if by == "timeout":
            async with asyncio.timeout(0.1):
                await tell()
        async with asyncio.TaskGroup() as group:  # which tells nobody a second time
            group.create_task(tell())
            group.create_task(fail())

    slow = await SlowToAnswer.of(bench)
    task = await bench.app.dispatch(flow)
    slow.before = 3600.0
    async with bench.worker():
        await cut.wait()
        if how == "cancel":
            await bench.app.cancel(task)
        with pytest.raises(TaskFailed if how == "timeout" else TaskCancelled):
            await task.result(timeout=4.0)
    assert number_of(bench, "other") == 0


async def test_a_replay_that_fails_beside_a_known_dispatch_fails_at_once(
    bench: Bench, no_linger: None
) -> None:
    """What came before the dispatch once does not come now."""
    lives, late = 0, asyncio.Event()

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def ask() -> None:
        await asyncio.sleep(0.2)
        await Holdfast.sleep(0.1)

    async def tell() -> None:
        if lives == 1:
            await asyncio.sleep(0.5)
        await bench.app.dispatch(other)

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> None:
        nonlocal lives
        lives += 1
        await Holdfast.step("first", str, 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            group.create_task(tell())
            if lives > 1:
                asyncio.get_running_loop().call_later(0.1, late.set)
                await late.wait()
                raise ValueError("this time")
        await Holdfast.sleep(0.1)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed, match="TaskGroup"):
            await task.result(timeout=20)
