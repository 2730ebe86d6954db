"""Cancel goes down to the children, in every state; what has ended stays as it is."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskCancelled
from holdfast.flow import arrivals
from tests.flow.acts import number_of, reason_of, waits
from tests.work.bench import Bench, until


@pytest.mark.parametrize("lingers", [True, False])
async def test_a_cancelled_parent_takes_its_children_with_it(
    bench: Bench, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is done, one pending, one running, one waits for its own child."""
    if not lingers:
        monkeypatch.setattr(arrivals, "_LINGER", 0.0)
    held = asyncio.Event()

    @bench.app.durable(name="done")
    async def done() -> int:
        return 1

    @bench.app.durable(name="pending", queue="nobody")
    async def pending() -> None: ...

    @bench.app.durable(name="runs")
    async def runs() -> None:
        held.set()
        await asyncio.Event().wait()

    @bench.app.durable(name="waits")
    async def waits_() -> None:
        await pending()

    @bench.app.durable(name="root")
    async def root() -> None:
        await done()
        await asyncio.gather(pending(), runs(), waits_())

    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(root)
        await held.wait()

        async def all_there() -> bool:
            return len((await bench.app.list_tasks(type="pending")).tasks) == 2

        await until(all_there)
        if not lingers:
            await waits(bench, task)
        assert await bench.app.cancel(task) in ("requested", "cancelled")
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)

        async def all_over() -> bool:
            tasks = (await bench.app.list_tasks()).tasks
            return all(one.status in ("cancelled", "done") for one in tasks)

        await until(all_over)
    found = sorted((one.type, str(one.status)) for one in (await bench.app.list_tasks()).tasks)
    assert found == [
        ("done", "done"),
        *[("pending", "cancelled")] * 2,
        *[(name, "cancelled") for name in ("root", "runs", "waits")],
    ]


async def test_a_cancelled_function_gets_a_new_life_with_new_children(bench: Bench) -> None:
    held, go = asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="child")
    async def child() -> int:
        held.set()
        await go.wait()
        return 5

    @bench.app.durable(name="root")
    async def root() -> int:
        return await child()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await held.wait()
        await bench.app.cancel(task)
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        go.set()
        assert await bench.app.retry(task)
        assert await task.result(timeout=60) == 5


async def test_a_function_that_was_cancelled_while_put_down_begins_its_children_anew(
    bench: Bench, no_linger: None
) -> None:
    go = asyncio.Event()

    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        await go.wait()
        return i

    @bench.app.durable(name="middle")
    async def middle(i: int) -> int:
        return await child(i)

    @bench.app.durable(name="root")
    async def root() -> list[Any]:
        return list(await asyncio.gather(child(1), middle(2), Holdfast.gather(child(3))))

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await waits(bench, task)
        await until(lambda: number_of(bench, "child") == 3)
        assert await bench.app.cancel(task) == "cancelled"

        async def all_over() -> bool:
            tasks = (await bench.app.list_tasks()).tasks
            return all(one.status == "cancelled" for one in tasks)

        await until(all_over)
        go.set()
        assert await bench.app.retry(task)
        assert await task.result(timeout=60) == [1, 2, [3]]
    assert number_of(bench, "child") == 3


async def test_a_function_that_hears_of_its_childs_cancel_first_begins_it_anew(
    bench: Bench,
) -> None:
    """The cancel is for the parent, and goes down; the heartbeat that tells it so comes late."""
    held = asyncio.Event()

    @bench.app.durable(name="child", queue="children")
    async def child() -> int:
        return 5

    @bench.app.durable(name="root")
    async def root() -> int:
        held.set()
        return await child()

    async with bench.worker(queues=["default"], heartbeat_interval=300.0):
        task = await bench.app.dispatch(root)
        await held.wait()
        await until(lambda: number_of(bench, "child") == 1)
        await (await bench.store()).cancel([task.id])
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        async with bench.worker(queues=["children"]):
            assert await bench.app.retry(task)
            assert await task.result(timeout=60) == 5


async def test_a_child_that_has_ended_is_not_overwritten(bench: Bench) -> None:
    @bench.app.durable(name="child")
    async def child() -> int:
        return 5

    @bench.app.durable(name="root")
    async def root() -> int:
        return await child()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == 5
        assert await bench.app.cancel(task) == "ended"
    (below,) = (await bench.app.list_tasks(type="child")).tasks
    assert below.status == "done"


def _in_every_state(app: Holdfast, begun: asyncio.Event) -> dict[str, Any]:
    """A function for each state that a task can be cancelled in, and in which it then stands."""

    @app.durable(name="pending", queue="nobody")
    async def pending() -> None: ...

    @app.durable(name="keyed", max_concurrent=1, concurrency_key="key", queue="nobody")
    async def keyed(key: str) -> None: ...

    @app.durable(name="runs")
    async def runs() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.durable(name="in_a_step")
    async def in_a_step() -> None:
        await Holdfast.step("runs", runs.function)

    @app.durable(name="fails", retry_policy=RetryPolicy(max_attempts=3, initial_delay=3600.0))
    async def fails() -> None:
        raise ValueError("not yet")

    @app.durable(name="sleeps")
    async def sleeps() -> None:
        await Holdfast.sleep("1h")

    @app.durable(name="listens")
    async def listens() -> None:
        await Holdfast.wait_for_signal("never")

    @app.durable(name="asks")
    async def asks() -> None:
        await pending()

    @app.durable(name="times")
    async def times() -> None:
        async with Holdfast.timeout("1h"):
            await asyncio.gather(pending(), Holdfast.sleep("2h"))

    @app.durable(name="sync")
    def sync() -> None:
        Holdfast.run(Holdfast.sleep("1h"))

    return {
        "pending": (pending, (), "pending"), "later": (pending.options(delay="1h"), (), "pending"),
        "blocked": (keyed, ("k",), "pending"), "running": (runs, (), "running"),
        "in a step": (in_a_step, (), "running"), "to be retried": (fails, (), "pending"),
        "asleep": (sleeps, (), "waiting"), "listening": (listens, (), "waiting"),
        "asking": (asks, (), "waiting"), "timed": (times, (), "waiting"),
        "sync": (sync, (), "waiting"),
    }  # fmt: skip


STATES = list(_in_every_state(Holdfast("sqlite://:memory:"), asyncio.Event()))


@pytest.mark.parametrize("state", STATES)
async def test_a_cancel_in_every_state_ends_the_task_and_all_below_it(
    bench: Bench, no_linger: None, state: str
) -> None:
    begun = asyncio.Event()
    function, args, stands = _in_every_state(bench.app, begun)[state]
    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(function, *args)
        if stands == "running":
            await begun.wait()

        async def is_there() -> bool:
            now = await bench.app.state_of(task)
            return now.status == stands and (state != "to be retried" or now.try_count == 1)

        await until(is_there)
        answer = await bench.app.cancel(task)
        assert answer == "cancelled" or (answer, stands) == ("requested", "running")
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        assert await bench.app.cancel(task) == "cancelled"

        async def all_over() -> bool:
            tasks = (await bench.app.list_tasks()).tasks
            return all(one.status == "cancelled" for one in tasks)

        await until(all_over)
    assert bench.leases() == 0


@pytest.mark.parametrize("lingers", [True, False])
async def test_a_parked_function_is_cancelled(
    bench: Bench, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bench.new_app()

    def register(app: Holdfast, name: str) -> Any:
        @app.durable(name="flow")
        async def flow() -> None:
            await Holdfast.step(name, int)
            await Holdfast.wait_for_signal("go")
            await Holdfast.step("end", int)

        return flow

    flow = register(bench.app, "one")
    register(other, "another")
    monkeypatch.setattr(arrivals, "_LINGER", 0.0)
    async with bench.worker():
        task = await bench.app.dispatch(flow)
        await waits(bench, task)
    monkeypatch.setattr(arrivals, "_LINGER", 1.0 if lingers else 0.0)
    async with bench.worker(other):
        await bench.app.send_signal(task, "go")

        async def is_parked() -> bool:
            return (await reason_of(bench, task)).startswith("parked")

        await until(is_parked)
        assert await bench.app.cancel(task) == "cancelled"
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
