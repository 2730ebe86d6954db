"""What a new life of a durable function knows of the old one, whatever becomes of its first
attempts; and failures that come beside something else."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, NonRetryable, TaskCancelled, TaskFailed, current
from holdfast.flow import ending
from holdfast.tasks.task import TaskStatus
from holdfast.work.worker import Worker
from tests.flow.acts import ONCE, SOON, number_of, waits
from tests.work.bench import Bench, until


async def test_a_new_life_that_stumbles_before_its_first_ask_still_gives_its_child_one(
    bench: Bench,
) -> None:
    calls: list[str] = []
    stumbles: list[str] = []

    @bench.app.durable(name="child", retry_policy=ONCE)
    async def child() -> str:
        calls.append("child")
        if len(calls) == 1:
            raise NonRetryable("not yet")
        return "done"

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        if stumbles:
            raise ConnectionError(stumbles.pop())
        return await child()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        stumbles.append("before anything is asked for")
        await bench.app.retry(task)

        async def is_over() -> bool:
            return str((await task.state()).status) in ("done", "failed") and not stumbles

        await until(is_over)
        assert await task.result(timeout=60) == "done"
    assert calls == ["child", "child"]
    ends = [end for end in await bench.ends(task) if end != "waiting"]  # on a slow machine
    assert ends == ["failed", "retry", "done"]


async def test_a_child_has_its_tries_once_in_a_life_also_where_its_parent_is_lost(
    bench: Bench,
) -> None:
    calls: list[str] = []
    lives: list[str] = []
    held, go = asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="child", retry_policy=ONCE)
    async def child() -> None:
        calls.append("child")
        held.set()
        await go.wait()
        raise NonRetryable("never")

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> None:
        lives.append("life")
        await Holdfast.step("first", asyncio.sleep, 0)
        if len(lives) == 1:
            raise NonRetryable("before there is a child")
        await child()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        await bench.app.retry(task)
        await held.wait()
        held_here = [one for one in await bench.app.active_leases() if one.task == task.id]
        for lease in held_here:  # else it was put down meanwhile, and nobody can lose it
            store = (await bench.app.home.client()).store
            assert await store.revoke(task.id, lease.fence)
            await store.recover(10)
        go.set()
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
    assert calls == ["child"]


async def test_a_timeout_that_was_acted_on_stays_where_a_stranger_times_out(bench: Bench) -> None:
    done: list[str] = []
    tries: list[str] = []

    async def effect(what: str) -> None:
        done.append(what)

    @bench.app.durable(name="order", retry_policy=SOON)
    async def order() -> str:
        try:
            await Holdfast.wait_for_signal("paid", timeout=timedelta(milliseconds=300))
        except TimeoutError:
            await Holdfast.step("call off", effect, "called off")
            tries.append("try")
            if len(tries) == 1:
                await bench.app.send_signal(task, "paid")
                raise TimeoutError("smtp") from None
            return "called off"
        await Holdfast.step("ship", effect, "shipped")
        return "shipped"

    async with bench.worker():
        task = await bench.app.dispatch(order)
        assert await task.result(timeout=60) == "called off"
    assert done == ["called off"]


async def test_a_function_that_fails_beside_an_endless_step_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_PATIENCE", 0.2)
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> None:
        beat = asyncio.create_task(Holdfast.step("beat", endless))
        await Holdfast.step("first", asyncio.sleep, 0)
        assert not beat.done()
        raise ValueError("it broke")

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed, match="it broke"):
            await task.result(timeout=60)
    assert ended == ["ended"]


async def test_a_new_life_that_is_parked_at_first_still_gives_its_child_one(bench: Bench) -> None:
    """The code was changed in a way that does not fit, and then mended."""
    calls: list[str] = []
    code: list[str] = ["old"]

    @bench.app.durable(name="child", retry_policy=ONCE)
    async def child() -> str:
        calls.append("child")
        if len(calls) == 1:
            raise NonRetryable("not yet")
        return "done"

    async def effect() -> None: ...

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> str:
        if code == ["old"]:
            await Holdfast.step("first", effect)
        else:
            await Holdfast.step("another", effect)
        return await child()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        code[:] = ["new"]
        await bench.app.retry(task)
        await waits(bench, task)
        code[:] = ["old"]
        await bench.app.retry(task)
        assert await task.result(timeout=60) == "done"
    assert calls == ["child", "child"]


async def test_a_child_that_fails_again_as_soon_as_it_is_revived_is_not_made_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its parent has looked what became of it."""
    failures = iter([True, True, False])

    @bench.app.durable(name="child", queue="children", retry_policy=ONCE)
    async def child() -> str:
        if next(failures):
            raise ConnectionError("it is down for a moment")
        return "up"

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent() -> str:
        return await child()

    store = await bench.store()
    retry = type(store).retry

    async def is_over(store: Any, task: Any) -> bool:
        return (await store.get(task)).status in (TaskStatus.FAILED, TaskStatus.DONE)

    async def slow(self: Any, tasks: Any) -> Any:
        revived = await retry(self, tasks)
        if (await self.get(tasks[0])).parent:
            await until(lambda: is_over(self, tasks[0]))
            return frozenset()  # as where the first answer was lost, and it was asked again
        return revived

    monkeypatch.setattr(type(store), "retry", slow)
    async with bench.worker(queues=["default"]), bench.worker(queues=["children"]):
        task = await bench.app.dispatch(parent)
        for _ in range(2):
            with pytest.raises(TaskFailed, match="down for a moment"):
                await task.result(timeout=30)
            assert await bench.app.retry(task)
        assert await task.result(timeout=30) == "up"
    assert number_of(bench, "child") == 1


async def test_a_run_that_is_cancelled_as_it_begins_anew_leaves_its_children_to_its_next_life(
    bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their cancel was that of a run that did begin anew, and the next life failed with it."""
    await _cancelled_as_it_begins_anew(bench, monkeypatch, with_rows=False)


async def test_so_does_one_that_writes_rows_of_its_own(
    postgres_bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _cancelled_as_it_begins_anew(postgres_bench, monkeypatch, with_rows=True)


async def _cancelled_as_it_begins_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, with_rows: bool
) -> None:
    lives: list[str] = []
    asked: list[UUID] = []
    late, over = asyncio.Event(), asyncio.Event()
    real = Worker._cancel

    async def cancel_late(self: Worker, tasks: Sequence[UUID], *, left: bool) -> None:
        asked.extend(tasks)
        await late.wait()
        await real(self, tasks, left=left)
        over.set()

    monkeypatch.setattr(Worker, "_cancel", cancel_late)

    @bench.app.durable(name="child")
    async def child() -> int:
        return await Holdfast.wait_for_signal("go", type=int)

    @bench.app.durable(name="root")
    async def root() -> str:
        branch = asyncio.create_task(child())
        await Holdfast.sleep(0.2)
        lives.append("life")
        if lives == ["life"]:
            if with_rows:
                async with current().transaction() as conn:
                    await conn.execute("select 1")
            store: Any = await bench.store()  # its worker hears of it with its next heartbeat
            await store._driver.call("request_cancel", ids=[current().task_id], rule="asked")
            await Holdfast.continue_as_new()
        return f"child {await branch}"

    async with bench.worker(heartbeat_interval=60.0):
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)
        await until(lambda: asked)
        assert await bench.app.retry(task)
        await until(lambda: len(lives) > 1)
        await waits(bench, task)
        late.set()
        await over.wait()
        await bench.app.send_signal(asked[0], "go", 5)
        assert await task.result(timeout=60) == "child 5"
