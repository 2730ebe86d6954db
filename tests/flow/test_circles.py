"""A function that would wait for what waits for it is told so, where it would wait for ever."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed
from holdfast.flow import children
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import ONCE, SOON, journal, status, waits
from tests.work.bench import Bench, until


@pytest.mark.parametrize("options", [{"idempotent": True}, {"cached": True}], ids=str)
async def test_a_call_of_the_function_itself(bench: Bench, options: dict[str, Any]) -> None:
    @bench.app.durable(name="tree", retry_policy=ONCE, **options)
    async def tree(node: int) -> int:
        return 1 + await tree(node % 2)

    async with bench.worker():
        task = await bench.app.dispatch(tree, 2)  # calls 0, which calls itself
        with pytest.raises(TaskFailed, match="would wait for itself: a call of tree"):
            await task.result(timeout=30)


@pytest.mark.parametrize("lingers", [True, False])
async def test_a_call_of_what_waits_for_it(
    bench: Bench, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far above; and who expects it goes on, also in a replay."""
    if not lingers:
        monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)
    seen: list[Any] = []

    @bench.app.durable(name="page", idempotent=True)
    async def page(number: int) -> list[int]:
        links = [(number + 1) % 5, 9]
        if number == 9:
            return [9]
        found = await asyncio.gather(*map(page, links), return_exceptions=True)
        await Holdfast.sleep(0.3)
        seen.append(found)
        return [number, *(one for part in found if isinstance(part, list) for one in part)]

    async with bench.worker():
        task = await bench.app.dispatch(page, 0)
        assert await task.result(timeout=30) == [0, 1, 2, 3, 4, 9, 9, 9, 9, 9]
        refused = [one for found in seen for one in found if isinstance(one, TaskFailed)]
        assert {str(one).partition(": a call")[0].partition("would")[2] for one in refused} == {
            f" wait for task {task.id}, which waits for it"
        }


async def test_what_is_resumed_is_told_again(bench: Bench) -> None:
    @bench.app.durable(name="tree", idempotent=True, retry_policy=ONCE)
    async def tree(node: int) -> int:
        await Holdfast.step("one", int)
        return await tree(node)

    async with bench.worker():
        task = await bench.app.dispatch(tree, 1)
        for _ in range(2):
            with pytest.raises(TaskFailed, match="would wait for itself"):
                await task.result(timeout=30)
            await bench.app.retry(task)
        with pytest.raises(TaskFailed, match="would wait for itself"):
            await task.result(timeout=30)
        assert "holder" not in await journal(bench, task)


async def test_who_waits_for_what_only_dispatched_it_gets_its_result(bench: Bench) -> None:
    @bench.app.durable(name="order", idempotent=True)
    async def order() -> str:
        await bench.app.dispatch(watcher)
        await Holdfast.sleep(0.1)
        return "sold"

    @bench.app.durable(name="watcher", idempotent=True)
    async def watcher() -> str:
        return f"it was {await order()}"

    async with bench.worker():
        await bench.app.dispatch(order)
        task = await bench.app.dispatch(watcher)
        assert await task.result(timeout=30) == "it was sold"


async def test_who_was_lost_before_it_was_told_is_told_in_its_next_life(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ask is written, and what it came to is not."""
    told = children._in_a_circle
    lost: list[int] = []

    def loses(*args: Any) -> Any:
        if not lost:
            lost.append(1)
            raise ConnectionError("the worker dies here")
        return told(*args)

    monkeypatch.setattr(children, "_in_a_circle", loses)

    @bench.app.durable(name="tree", idempotent=True, retry_policy=SOON)
    async def tree(node: int) -> str:
        try:
            return await tree(node)
        except TaskFailed as error:
            return str(error)

    async with bench.worker():
        task = await bench.app.dispatch(tree, 1)
        assert "would wait for itself" in await task.result(timeout=30)
    assert lost


@pytest.mark.parametrize("lingers", [True, False])
async def test_two_that_began_by_themselves_and_wait_for_each_other(
    bench: Bench, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is told, and the other gets its answer; also where both are put down at once."""
    if not lingers:
        monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)
    begun = asyncio.Barrier(2)

    @bench.app.durable(name="one", idempotent=True, retry_policy=ONCE)
    async def one(other: int) -> str:
        await Holdfast.step("meet", begun.wait)
        return await _says(one(1 - other))

    async with bench.worker():
        tasks = [await bench.app.dispatch(one, other) for other in (0, 1)]
        results = {await task.result(timeout=30) for task in tasks}
        assert results == {"told", "heard told"}


async def test_a_circle_of_many(bench: Bench, no_linger: None) -> None:
    """Some wait for children, some for what others had asked for, and two go round for ever."""
    links = {0: [1, 2], 1: [2, 3], 2: [3, 4], 3: [4, 1], 4: [2, 0]}

    @bench.app.durable(name="page", idempotent=True, retry_policy=ONCE)
    async def page(number: int) -> int:
        await Holdfast.sleep(0.1)
        found = await asyncio.gather(*map(page, links[number]), return_exceptions=True)
        return len(found)

    async with bench.worker():
        tasks = [await bench.app.dispatch(page, number) for number in (0, 3)]
        for task in tasks:
            assert await task.result(timeout=60) == 2


async def test_what_its_parent_waits_for_no_more_may_ask_for_it(bench: Bench) -> None:
    lives: list[int] = []

    @bench.app.durable(name="order", idempotent=True, retry_policy=ONCE)
    async def order() -> str:
        try:
            return await part()
        except TaskFailed:
            return "sold out"

    @bench.app.durable(name="part", idempotent=True, retry_policy=ONCE)
    async def part() -> str:
        lives.append(1)
        if len(lives) == 1:
            raise ValueError("the shop is closed")
        return f"after {await order()}"

    async with bench.worker():
        assert await (await bench.app.dispatch(order)).result(timeout=30) == "sold out"
        task = await bench.app.dispatch(part)
        assert await bench.app.retry(task)
        assert await task.result(timeout=30) == "after sold out"


@pytest.mark.parametrize("gone", ["cleanup", "discard"])
async def test_what_was_forgotten_before_it_was_heard_is_asked_for_anew(
    bench: Bench, no_linger: None, gone: str
) -> None:
    """It ended while nobody had a place for whoever watched it."""
    go = asyncio.Event()
    lives: list[int] = []

    @bench.app.durable(name="rate", idempotent=True, queue="rates", retry_policy=ONCE)
    async def rate() -> int:
        lives.append(1)
        await go.wait()
        if gone == "discard" and len(lives) == 1:
            raise ValueError("closed today")
        return 10 * len(lives)

    @bench.app.durable(name="parent", queue="parents", retry_policy=ONCE)
    async def parent() -> int:
        return await rate()

    store = await bench.store()
    async with bench.worker(queues=["rates", "parents"]):
        whole = await bench.app.dispatch(rate)
        task = await bench.app.dispatch(parent)
        await waits(bench, task)
        await store.pause("parents")
        go.set()
        await until(lambda: _is(bench, task, TaskStatus.PENDING))
        if gone == "cleanup":
            await until(lambda: store.cleanup(timedelta(0)))
        else:
            assert await store.discard([whole.id])
        await store.resume("parents")
        assert await task.result(timeout=30) == 20


async def _says(call: Any) -> str:
    try:
        return f"heard {await call}"
    except TaskFailed as error:
        return "told" if "would wait for" in str(error) else str(error)


async def _is(bench: Bench, task: Any, wanted: TaskStatus) -> bool:
    return await status(bench, task) is wanted
