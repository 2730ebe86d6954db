"""Functions that will not leave when they are put down: they harm nobody but themselves."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskCancelled, current
from holdfast.errors import StoreError, StoreUnreachable
from holdfast.flow.children import Children
from holdfast.flow.ending import Ending
from holdfast.tasks.task import TaskStatus
from holdfast.work.transaction import Transaction
from tests.storm.ledger import peek
from tests.work.bench import Bench, until

FROZEN = 50_000  # rounds in which nobody else had the event loop

ASKS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "sleep": lambda child: Holdfast.sleep(3600),
    "signal": lambda child: Holdfast.wait_for_signal("never"),
    "step": lambda child: Holdfast.step("none", int),
    "child": lambda child: child(1),
    "join": lambda child: child.map([1, 2]),
    "some": lambda child: child.map([1, 2, 3], at_most=2),
    "anew": lambda child: Holdfast.continue_as_new(),
}


@pytest.fixture
async def stop() -> AsyncIterator[asyncio.Event]:
    """Set at the end at the latest: no loop could be closed on such functions."""
    event = asyncio.Event()
    yield event
    event.set()
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("ask", ASKS)
async def test_a_function_that_goes_round_in_a_circle_leaves_the_loop_to_others(
    bench: Bench, no_linger: None, stop: asyncio.Event, ask: str
) -> None:
    refused, turns = 0, 0

    @bench.app.durable(name="child", queue="nobody")
    async def child(i: int) -> None: ...

    @bench.app.durable(name="stubborn")
    async def stubborn() -> None:
        nonlocal refused
        try:
            await Holdfast.sleep(3600)
        except BaseException:
            while not stop.is_set() and refused < FROZEN:
                try:
                    await ASKS[ask](child)
                except BaseException:
                    refused += 1

    async def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with bench.worker(queues=["default"]):
        await bench.app.dispatch(stubborn)
        counting = asyncio.create_task(count())
        await until(lambda: refused > 15)
        stop.set()
        await counting
    assert refused < FROZEN


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, no_linger: None) -> None:
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("asks_on", [True, False])
async def test_who_will_not_be_put_down_waits_all_the_same(
    bench: Bench, stop: asyncio.Event, asks_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task stayed `running`, and its signal was heard by nobody."""
    lives = 0

    @bench.app.durable(name="stubborn")
    async def stubborn() -> str:
        nonlocal lives
        lives += 1
        if lives > 1:
            return await Holdfast.wait_for_signal("go", type=str)
        while not stop.is_set():
            try:
                await Holdfast.wait_for_signal("go")
            except BaseException:
                await (asyncio.sleep(0) if asks_on else stop.wait())
        return "in spite of it"

    async with bench.worker(max_concurrency=2) as lifecycle:
        task = await bench.app.dispatch(stubborn)
        await until(lambda: "goes on although it waits" in caplog.text)
        await until(lambda: bench.leases() == 0)
        assert (await task.state()).status is TaskStatus.WAITING
        assert slots_taken(bench) == 1
        await bench.app.send_signal(task, "go", "it is heard")
        assert await task.result(timeout=60) == "it is heard"
        lifecycle.request_drain()
        await until(lambda: lifecycle.state == "stopped")  # though one is still there
        assert not stop.is_set()
        stop.set()
    assert await bench.ends(task) == ["waiting", "done"]


@pytest.mark.usefixtures("quick")
async def test_who_cannot_go_on_and_does_is_tried_again(
    bench: Bench, stop: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    @bench.app.durable(name="stubborn", retry_policy=RetryPolicy(initial_delay=0.0))
    async def stubborn() -> str:
        try:
            await Holdfast.sleep(0)
        except BaseException:
            await stop.wait()
        return f"attempt {current().attempt}"

    real, faults = Children.record, [ZeroDivisionError("a fault of ours")]

    async def record(*asked: Any, **how: Any) -> bool:
        if faults:
            raise faults.pop()
        return await real(*asked, **how)

    async with bench.worker():
        monkeypatch.setattr(Children, "record", record)
        task = await bench.app.dispatch(stubborn)
        assert await task.result(timeout=60) == "attempt 2"
        assert slots_taken(bench) == 1
        stop.set()
        await until(lambda: slots_taken(bench) == 0)
    assert await bench.ends(task) == ["retry", "done"]


@pytest.mark.usefixtures("quick")
async def test_who_only_waited_takes_no_slot_and_is_parked_when_it_does_so_again(
    bench: Bench, stop: asyncio.Event
) -> None:
    """Each of its lives took a slot, until there was none."""
    lives = 0

    @bench.app.durable(name="quickly")
    async def quickly() -> str:
        return "others run"

    @bench.app.durable(name="stubborn")
    async def stubborn() -> None:
        nonlocal lives
        lives += 1
        for _ in range(2):
            try:
                await Holdfast.sleep(0.2)
            except BaseException:
                await stop.wait()
                raise

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(stubborn)
        await until(lambda: lives == 2)
        await until(lambda: bench.leases() == 0)
        assert await (await bench.app.dispatch(quickly)).result(timeout=60) == "others run"
        assert (reason := (await task.state()).reason)
        assert reason.startswith("parked: its code goes on where it is put down")
        assert slots_taken(bench) == 2  # the code of both
        stop.set()
        await until(lambda: slots_taken(bench) == 0)
        await bench.app.retry(task)
        await task.result(timeout=60)
    assert (await bench.ends(task))[-1] == "done"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["child", "sleep", "side by side"])
async def test_who_undoes_for_long_hears_that_nobody_waits_for_it(bench: Bench, how: str) -> None:
    """It waited for what never came, in a slot, for ever."""
    began, heard = asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="child", queue="nobody")
    async def child() -> None: ...

    async def slow() -> None:
        await asyncio.sleep(3600)

    @bench.app.durable(name="undoing")
    async def undoing() -> None:
        await Holdfast.step("one", int)
        try:
            began.set()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            try:
                if how == "child":
                    await child()
                elif how == "sleep":
                    await Holdfast.sleep(3600)
                else:
                    await asyncio.gather(Holdfast.step("u", slow), Holdfast.step("v", slow))
            except asyncio.CancelledError:
                heard.set()
            raise

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(undoing)
        await began.wait()
        await task.cancel()
        await asyncio.wait_for(heard.wait(), 60)
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        await until(lambda: slots_taken(bench) == 0)


@pytest.mark.usefixtures("quick")
async def test_what_an_ended_function_left_behind_takes_no_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its function is done, when it hears that what it writes is refused."""
    trouble, went_wrong = False, asyncio.Event()

    @bench.app.durable(name="quickly")
    async def quickly() -> str:
        return "others run"

    @bench.app.durable(name="parent")
    async def parent() -> str:
        nonlocal trouble

        async def aside() -> None:
            nonlocal trouble
            await Holdfast.step("in", int)
            current().uuid()  # is written first
            trouble = True
            await bench.app.dispatch(quickly)

        await Holdfast.step("one", int)
        left.append(asyncio.create_task(aside()))
        await went_wrong.wait()
        return "done"

    left: list[asyncio.Task[None]] = []
    async with bench.worker(max_concurrency=1):
        store = await bench.store()
        real = store.record

        async def record(*asked: Any, **how: Any) -> Any:
            nonlocal trouble
            if trouble:
                trouble = False
                went_wrong.set()
                raise StoreUnreachable("a connection was dropped")
            return await real(*asked, **how)

        monkeypatch.setattr(store, "record", record)
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=60) == "done"
        await asyncio.wait(left, timeout=60)
        await asyncio.sleep(0.3)  # in which it would be given up
        assert await (await bench.app.dispatch(quickly)).result(timeout=60) == "others run"
    assert "goes on although" not in caplog.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("slow", [0.0, 0.5])
async def test_who_begins_anew_does_so_when_it_has_ended(bench: Bench, slow: float) -> None:
    """It began before its children were known, and they ran on."""

    @bench.app.durable(name="child", queue="nobody")
    async def child() -> None: ...

    @bench.app.durable(name="parent")
    async def parent(run: int) -> str:
        if run == 2:
            return "ended"

        async def aside() -> None:
            begun.append(await bench.app.dispatch(child))
            await child()

        left = asyncio.create_task(aside())
        await Holdfast.sleep(0.2)
        try:
            await Holdfast.continue_as_new(2)
        finally:
            await asyncio.sleep(slow)
        return f"never, nor does {left}"

    begun: list[Any] = []
    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent, 1)
        assert await task.result(timeout=60) == "ended"
        await until(lambda: statuses(bench, "child") == {"cancelled": 1, "pending": 1})
        assert (await begun[0].state()).status is TaskStatus.PENDING  # nobody's child


@pytest.mark.usefixtures("quick")
async def test_who_begins_anew_and_does_not_end_is_given_up_at_last(
    bench: Bench, stop: asyncio.Event
) -> None:
    """It stayed `running`; and its children ran on for nobody."""

    @bench.app.durable(name="child", queue="nobody")
    async def child() -> None: ...

    async def aside() -> None:
        await child()

    @bench.app.durable(name="parent")
    async def parent(run: int) -> str:
        if run == 2:
            return "ended"
        left = asyncio.create_task(aside())
        await Holdfast.sleep(0.2)
        while not stop.is_set():
            try:
                await Holdfast.continue_as_new(2)
            except BaseException:
                await asyncio.sleep(0.01)
        return f"never, nor does {left}"

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent, 1)
        assert await task.result(timeout=60) == "ended"
        await until(lambda: statuses(bench, "child") == {"cancelled": 1})
        stop.set()


@pytest.mark.usefixtures("quick")
async def test_who_is_given_up_is_told_of_no_results(bench: Bench) -> None:
    """It was told of an empty list, and went on with that."""
    heard: list[Any] = []

    @bench.app.durable(name="child", queue="nobody")
    async def child(n: int) -> int:
        return n

    @bench.app.durable(name="parent")
    async def parent() -> None:
        async def aside() -> None:
            try:
                heard.append(await Holdfast.gather(child(1), child(2)))
            except asyncio.CancelledError as error:
                heard.append(error)

        beside = asyncio.create_task(aside())
        try:
            await Holdfast.sleep(3600)
        except asyncio.CancelledError:
            await beside

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent)
        await until(lambda: bool(heard))
        assert [type(one) for one in heard] == [asyncio.CancelledError]
        await task.cancel()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["code", "escape"])
async def test_rows_that_are_refused_with_a_slow_end_are_an_error(
    postgres_bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Given up meanwhile, it was `running` until its lease lapsed, or tried again for nothing."""

    @postgres_bench.app.durable(name="parent", retry_policy=RetryPolicy(initial_delay=0.0))
    async def parent(run: int) -> str:
        if run == 2:
            return "ended"
        try:
            async with current().transaction() as conn:
                await conn.execute("select 1")
            await Holdfast.continue_as_new(2)
        finally:
            await asyncio.sleep(0.5 if where == "code" else 0.0)
        return "never"

    real_commit, real_escape, refused = Transaction.commit, Ending.escape, False

    async def commit(self: Transaction, settlement: Any) -> bool:
        nonlocal refused
        if not refused:
            refused = True
            raise StoreError("a row is refused")
        return await real_commit(self, settlement)

    async def escape(self: Ending, error: BaseException, *, final: bool) -> None:
        await asyncio.sleep(0.5 if where == "escape" else 0.0)
        await real_escape(self, error, final=final)

    monkeypatch.setattr(Transaction, "commit", commit)
    monkeypatch.setattr(Ending, "escape", escape)
    async with postgres_bench.worker():
        task = await postgres_bench.app.dispatch(parent, 1)
        assert await task.result(timeout=60) == "ended"
    assert await postgres_bench.ends(task) == ["retry", "snoozed", "done"]


@pytest.mark.usefixtures("quick")
async def test_who_was_given_up_and_asks_late_hears_no_news_of_the_next_attempt(
    bench: Bench,
    stop: asyncio.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next one's child ended, and it was not told."""
    monkeypatch.setattr("holdfast.upkeep.chores._NET", 3600.0)  # which would find it
    lives, late, asked = 0, asyncio.Event(), asyncio.Event()
    end = asyncio.Event()

    @bench.app.durable(name="child")
    async def child() -> int:
        await end.wait()
        return 7

    @bench.app.durable(name="parent")
    async def parent() -> int:
        nonlocal lives
        lives += 1
        if lives > 1:
            return await child()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await late.wait()
            asked.set()
            with suppress(asyncio.CancelledError):
                await Holdfast.sleep(3600)
            await stop.wait()
        return 0

    async with bench.worker(heartbeat_interval=100.0):  # else it could renew what has lapsed
        task = await bench.app.dispatch(parent)
        await until(lambda: lives == 1)
        bench.lapse(task.id)
        await until(lambda: lives == 2)
        await until(lambda: "goes on although" in caplog.text)
        while (await task.state()).status is not TaskStatus.WAITING:
            await asyncio.sleep(0.01)
        late.set()
        await asyncio.wait_for(asked.wait(), 60)
        await asyncio.sleep(0.2)
        end.set()
        assert await task.result(timeout=30) == 7
        stop.set()


def slots_taken(bench: Bench) -> int:
    (one,) = bench.app.worker_status_overview()["workers"]
    return len(one["active_job_ids"])


def statuses(bench: Bench, type: str) -> dict[str, int]:
    rows = peek(bench.place, f"select status from {{s}}tasks where type = '{type}'")
    return dict(Counter(status for (status,) in rows))
