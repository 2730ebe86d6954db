"""Dispatches and signals from inside a function: once in a run, whatever crashes."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, Snooze, TaskFailed, TaskHandle, current
from holdfast.flow import arrivals
from tests.flow.acts import SOON, number_of
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
