"""Dispatches and signals from inside a function: once in a run, whatever crashes."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, Snooze, TaskFailed, TaskHandle, current
from holdfast.flow import arrivals
from holdfast.flow.pump import Pump
from tests.flow.acts import SOON, number_of, waits
from tests.flow.crashing import BOTH_SIDES, Crashing
from tests.storm.ledger import peek
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=50, initial_delay=0.0, jitter=0.0)


def _register(app: Holdfast) -> Any:
    @app.durable(name="other", queue="nobody")
    async def other(run: int, i: int) -> None: ...

    @app.durable(name="child", retry_policy=PATIENT)
    async def child(i: int) -> int:
        return i

    async def branch(run: int, i: int) -> str:
        await child(i)
        return str((await app.dispatch(other, run, 5)).id)

    @app.durable(name="flow", retry_policy=PATIENT)
    async def flow(run: int, listener: str) -> list[str]:
        """Nothing is asked for before the first dispatch."""
        made = [await app.dispatch(other, run, 1)]
        made.append(await app.dispatch(other, run, 1))
        await app.send_signal(listener, "first", run)
        made += await app.dispatch_many([other.call(run, i) for i in (2, 3)])
        await child(0)
        made.append(await app.dispatch(other, run, 1))
        pair = await asyncio.gather(branch(run, 1), branch(run, 2))
        made.append(await app.dispatch(other, run, 4))
        await Holdfast.sleep(0.01)
        await app.send_signal(listener, "second", run)
        made.append(await app.dispatch(other, run, 4))
        return [str(task.id) for task in made] + list(pair)

    return flow


@pytest.mark.timeout(300)
@BOTH_SIDES
async def test_a_crash_at_every_call_dispatches_nothing_twice(
    bench: Bench, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = Crashing(bench)
    flow = crashing.register(_register)
    listener = await bench.app.dispatch(flow.options(queue="nobody"), 0, "")
    runs = 0

    async def start() -> TaskHandle[Any]:
        task: TaskHandle[Any] = await crashing.rescuer.dispatch(flow, runs, str(listener.id))
        return task

    while runs < 200:
        runs += 1
        monkeypatch.setattr(arrivals, "_LINGER", 0.0 if runs % 2 else 1.0)
        _, found = await crashing.run(runs, start, after=after)
        assert len(set(found)) == 9
        assert number_of(bench, "other") == 9 * runs
        (sent,) = peek(bench.place, "select count(*) from {s}signal")
        assert int(sent[0]) == 2 * runs
        assert crashing.doomed
        if not crashing.doomed.dead:
            break
    assert runs > 10


async def test_a_try_that_fails_keeps_what_a_durable_function_has_dispatched(
    bench: Bench,
) -> None:
    seen: list[str] = []

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def one() -> int:
        return 1

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> None:
        first = await bench.app.dispatch(other)
        await Holdfast.step("one", one)
        seen.append(f"{first.id} {(await bench.app.dispatch(other)).id}")
        if len(seen) < 3:
            raise ValueError("not yet")

    async with bench.worker(queues=["default"]):
        await (await bench.app.dispatch(flow)).result(timeout=60)
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert number_of(bench, "other") == 2


@pytest.mark.parametrize("how", ["retry", "snooze"])
async def test_an_ordinary_task_that_is_tried_again_dispatches_anew(bench: Bench, how: str) -> None:
    """It asks for nothing that is recorded, so all of its work is done again."""
    ran = []

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="plain", retry_policy=SOON)
    async def plain() -> None:
        async with asyncio.timeout(60):
            await bench.app.dispatch(other)
        ran.append(current().attempt)
        if len(ran) < 3:
            raise Snooze(0.01) if how == "snooze" else ValueError("not yet")

    async with bench.worker(queues=["default"]):
        await (await bench.app.dispatch(plain)).result(timeout=60)
    assert number_of(bench, "other") == 3


async def test_an_ordinary_task_that_was_lost_dispatches_nothing_twice(bench: Bench) -> None:
    begun, ran = asyncio.Event(), []

    @bench.app.durable(name="other", queue="nobody")
    async def other(i: int) -> None: ...

    @bench.app.durable(name="plain")
    async def plain() -> None:
        await bench.app.dispatch(other, 1)
        await bench.app.dispatch_many([other.call(1), other.call(2)])
        ran.append(current().fence)
        if len(ran) == 1:
            begun.set()
            await asyncio.Event().wait()

    async with bench.worker(queues=["default"], heartbeat_interval=300.0):
        task = await bench.app.dispatch(plain)
        await begun.wait()
        bench.lapse(task.id)
        await task.result(timeout=60)
    assert len(ran) == 2
    assert number_of(bench, "other") == 3


async def test_a_lost_task_that_dispatches_in_another_order_gives_nobody_anothers_task(
    bench: Bench,
) -> None:
    begun, made = asyncio.Event(), dict[str, Any]()

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="plain")
    async def plain() -> None:
        users = ["ann", "bob"] if current().fence == 1 else ["bob", "ann"]
        for user in users:
            made[user] = await bench.app.dispatch(other.options(user_id=user))
        if current().fence == 1:
            begun.set()
            await asyncio.Event().wait()

    async with bench.worker(queues=["default"], heartbeat_interval=300.0):
        task = await bench.app.dispatch(plain)
        await begun.wait()
        bench.lapse(task.id)
        await task.result(timeout=60)
    assert {user: (await one.state()).user_id for user, one in made.items()} == {
        "ann": "ann",
        "bob": "bob",
    }


async def test_a_sync_function_dispatches_once(bench: Bench, no_linger: None) -> None:
    @bench.app.durable(name="other", queue="nobody")
    async def other(i: int) -> None: ...

    @bench.app.durable(name="sync")
    def sync() -> list[str]:
        made = [bench.app.dispatch_sync(other, 1)]
        Holdfast.run(Holdfast.sleep(0.01))
        made.append(bench.app.dispatch_sync(other, 1))
        made.append(Holdfast.run(bench.app.dispatch(other, 2)))
        Holdfast.run(Holdfast.sleep(0.01))
        return [str(task.id) for task in made]

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(sync)
        assert len(set(await task.result(timeout=60))) == 3
    assert number_of(bench, "other") == 3


async def test_a_step_dispatches_whenever_it_runs(bench: Bench) -> None:
    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    async def twice() -> None:
        await bench.app.dispatch(other)
        await bench.app.dispatch(other)

    @bench.app.durable(name="flow")
    async def flow() -> None:
        await Holdfast.step("twice", twice)
        await Holdfast.sleep(0.01)

    async with bench.worker(queues=["default"]):
        await (await bench.app.dispatch(flow)).result(timeout=60)
    assert number_of(bench, "other") == 2


async def test_what_a_dispatch_is_done_on_the_ground_of_is_written_first(bench: Bench) -> None:
    kept: list[list[str]] = []

    @bench.app.durable(name="other", queue="nobody")
    async def other(key: str) -> None: ...

    async def fails() -> None:
        raise LookupError

    @bench.app.durable(name="flow")
    async def flow() -> None:
        store = await bench.store()

        async def look() -> None:
            journal = await store.journal(current().task_id)
            kept.append([step.kind for step in journal.steps])

        await Holdfast.step("begin", str)
        await bench.app.dispatch(other, str(current().uuid()))
        await look()
        try:
            await Holdfast.step("fails", fails)
        except TaskFailed:
            await bench.app.dispatch(other, "refund")
        await look()

    async with bench.worker():
        await (await bench.app.dispatch(flow)).result(timeout=60)
    assert kept[0][:2] == ["step", "value"]
    assert kept[1].count("step") == 2, (
        "that a step failed is known before anything is done about it"
    )


@pytest.mark.parametrize("by", ["dispatch", "signal"])
async def test_what_others_write_takes_no_child_along_without_making_it(
    bench: Bench, by: str
) -> None:
    """It stood in the journal as asked for, was never made, and its parent waited for ever."""

    @bench.app.durable(name="other", queue="nobody")
    async def other(number: float) -> None: ...

    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i

    async def tell() -> None:
        if by == "dispatch":
            await bench.app.dispatch(other, current().random())
        else:
            await bench.app.send_signal(current().task_id, "told", current().random())

    @bench.app.durable(name="flow")
    async def flow() -> int:
        await Holdfast.step("first", str, 1)
        *_, found = await asyncio.gather(tell(), tell(), child(1))
        return int(found)

    async with bench.worker():
        tasks = await bench.app.dispatch_many([flow.call() for _ in range(20)])
        assert [await task.result(timeout=30) for task in tasks] == [1] * 20
    assert number_of(bench, "child") == 20


@pytest.mark.parametrize("first", ["child", "dispatch"])
async def test_a_dispatch_beside_a_child_comes_in_a_replay_where_it_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, no_linger: None, first: str
) -> None:
    """Known, it came at once: before what had come before it."""
    go_on, ended = asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="child")
    async def child() -> None:
        if first == "dispatch":
            await ended.wait()

    @bench.app.durable(name="flow")
    async def flow() -> bool:
        async def aside() -> None:
            await bench.app.dispatch(other)
            ended.set()

        beside = asyncio.create_task(aside())
        await child()
        was_first = bool(await Holdfast.step("first", bool, beside.done()))
        go_on.set()
        await beside
        await Holdfast.wait_for_signal("go")
        return was_first

    async with bench.worker(queues=["default"]):
        store = await bench.store()
        real = store.enqueue

        async def enqueue(drafts: Any, **how: Any) -> Any:
            if first == "child" and drafts[0].lane.type == "other":
                await go_on.wait()
            return await real(drafts, **how)

        monkeypatch.setattr(store, "enqueue", enqueue)
        task = await bench.app.dispatch(flow)
        await waits(bench, task)
        await bench.app.send_signal(task, "go", 1)
        assert await task.result(timeout=60) is (first == "dispatch")


async def test_a_dispatch_that_ends_just_as_a_child_is_heard_of_comes_after_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, no_linger: None
) -> None:
    """Nothing told on which side of it, and a replay took the other one."""
    go_on = asyncio.Event()

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="child")
    async def child() -> None: ...

    async def nested(depth: int) -> None:
        """So many turns later the function hears of it."""
        await (asyncio.create_task(nested(depth - 1)) if depth else child())

    @bench.app.durable(name="flow")
    async def flow() -> bool:
        await Holdfast.step("begin", int)
        beside = asyncio.create_task(bench.app.dispatch(other))
        await nested(10)
        was_first = bool(await Holdfast.step("first", bool, beside.done()))
        await beside
        await Holdfast.wait_for_signal("go")
        return was_first

    real_hand_over = Pump._hand_over

    def hand_over(self: Pump) -> None:
        real_hand_over(self)
        go_on.set()

    monkeypatch.setattr(Pump, "_hand_over", hand_over)
    async with bench.worker(queues=["default"]):
        store = await bench.store()
        real = store.enqueue

        async def enqueue(drafts: Any, **how: Any) -> Any:
            done = await real(drafts, **how)
            if drafts[0].lane.type == "other":
                await go_on.wait()
            return done

        monkeypatch.setattr(store, "enqueue", enqueue)
        task = await bench.app.dispatch(flow)
        await waits(bench, task)
        await bench.app.send_signal(task, "go", 1)
        assert await task.result(timeout=60) is False


async def test_what_is_awaited_behind_a_dispatch_comes_in_a_replay_where_it_came(
    bench: Bench,
) -> None:
    """A queue right behind it counted as left in a replay as soon as it was entered."""

    @bench.app.durable(name="other", queue="nobody")
    async def other() -> None: ...

    @bench.app.durable(name="child")
    async def child() -> None:
        await asyncio.sleep(0.6)

    lives: list[list[str]] = []

    @bench.app.durable(name="flow", retry_policy=SOON)
    async def flow() -> list[str]:
        queue = asyncio.Queue[None]()
        seen: list[str] = []

        async def aside() -> None:
            await bench.app.dispatch(other)
            asyncio.get_running_loop().call_later(0.2, queue.put_nowait, None)
            await queue.get()
            seen.append("queue")

        await Holdfast.step("begin", int)
        beside = asyncio.create_task(aside())
        await child()
        seen.append("child")
        lives.append([*seen])
        await Holdfast.step("seen", list, seen)
        if len(lives) == 1:
            raise ConnectionError("once more")
        await beside
        return seen

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["queue", "child"]
    assert lives == [["queue", "child"]] * 2
