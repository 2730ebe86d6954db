"""Branches side by side. What raced once races the same way again."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed, current
from holdfast.errors import StepFailed
from holdfast.flow import arrivals
from tests.flow.acts import ONCE, SOON, number_of, status, waits
from tests.work.bench import Bench, until


@pytest.fixture(params=["stays", "is put down"], autouse=True)
def linger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "is put down":
        monkeypatch.setattr(arrivals, "_LINGER", 0.0)


async def test_every_way_to_fan_out(bench: Bench) -> None:
    @bench.app.durable(name="double")
    async def double(i: int) -> int:
        return 2 * i

    @bench.app.durable(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    @bench.app.durable(name="root")
    async def root() -> list[Any]:
        found: list[Any] = [await asyncio.gather(double(1), double(2))]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(double(i)) for i in (3, 4)]
        found.append([task.result() for task in tasks])
        found.append(await Holdfast.gather(double(5), double(6)))
        found.append(await double.map([7, 8]))
        found.append(await Holdfast.map(double, [9, 10], at_most=1))
        found.append(await add.starmap([(1, 2), (3, 4)]))
        found.append(await Holdfast.gather(*(double.call(i) for i in range(7)), at_most=3))
        found.append(await Holdfast.gather())
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == [
            [2, 4], [6, 8], [10, 12], [14, 16], [18, 20], [3, 7], [0, 2, 4, 6, 8, 10, 12], [],
        ]  # fmt: skip
    assert number_of(bench, "double") == 17


async def test_at_most_so_many_children_at_once(bench: Bench) -> None:
    running: set[int] = set()
    most: list[int] = []

    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        running.add(i)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.discard(i)
        return i

    @bench.app.durable(name="root")
    async def root() -> list[int]:
        return await leaf.map(range(9), at_most=3)

    async with bench.worker(max_concurrency=20):
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == list(range(9))
    assert max(most) <= 3


async def test_the_first_failure_of_a_join_cancels_the_others(bench: Bench) -> None:
    @bench.app.durable(name="bad", retry_policy=ONCE)
    async def bad() -> None:
        raise ValueError("bad")

    @bench.app.durable(name="never")
    async def never() -> None:
        await asyncio.Event().wait()

    @bench.app.durable(name="root")
    async def root() -> str:
        try:
            await Holdfast.gather(never(), bad(), never())
        except TaskFailed as failed:
            return failed.message
        return "no failure"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == "bad"

        async def all_over() -> bool:
            found = (await bench.app.list_tasks(type="never")).tasks
            return [one.status for one in found] == ["cancelled"] * 2

        await until(all_over)


async def test_exceptions_as_results(bench: Bench) -> None:
    @bench.app.durable(name="odd", retry_policy=ONCE)
    async def odd(i: int) -> int:
        if i % 2 == 0:
            raise ValueError(f"{i} is even")
        return i

    @bench.app.durable(name="root")
    async def root() -> list[list[str]]:
        def told(found: list[Any]) -> list[str]:
            return [one.message if isinstance(one, TaskFailed) else str(one) for one in found]

        return [
            told(await odd.map(range(4), return_exceptions=True)),
            told(await odd.map(range(4), at_most=2, return_exceptions=True)),
            told(await asyncio.gather(*(odd(i) for i in range(4)), return_exceptions=True)),
        ]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == [["0 is even", "1", "2 is even", "3"]] * 3


async def test_the_first_of_several_wins_and_wins_again(bench: Bench) -> None:
    go = asyncio.Event()
    told: list[list[str]] = []

    @bench.app.durable(name="racer")
    async def racer(name: str) -> str:
        if name == "slow":
            await go.wait()
        return name

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        tasks = [asyncio.create_task(racer(name)) for name in ("slow", "quick")]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        order = [task.result() for task in done]
        go.set()
        done, _ = await asyncio.wait(tasks)
        told.append(order)
        if len(told) < 3:
            raise ValueError("once more")
        return order

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == ["quick"]
    assert told == [["quick"]] * 3


async def test_steps_that_end_together_reach_the_function_one_after_the_other(
    bench: Bench,
) -> None:
    told: list[list[list[int]]] = []
    together = asyncio.Barrier(3)

    async def effect(i: int) -> int:
        await together.wait()
        return i

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[list[int]]:
        pending = {asyncio.create_task(Holdfast.step("x", effect, i)) for i in range(3)}
        order: list[list[int]] = []
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            order.append(sorted(task.result() for task in done))
        told.append(order)
        if len(told) < 2:
            raise ValueError("once more")
        return order

    async with bench.worker():
        task = await bench.app.dispatch(root)
        found = await task.result(timeout=60)
    assert told == [found, found]


@pytest.mark.parametrize("ends", ["last", "is given up"])
async def test_what_follows_a_join_comes_before_what_comes_next(bench: Bench, ends: str) -> None:
    told: list[str] = []

    @bench.app.durable(name="quick")
    async def quick(i: int) -> int:
        return i

    @bench.app.durable(name="slow")
    async def slow() -> str:
        await Holdfast.sleep(0.5 if ends == "last" else 600)
        return "came"

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        async def beside() -> str:
            try:
                return await slow()
            except asyncio.CancelledError:
                return "given up"

        other = asyncio.create_task(beside())
        await quick.map([1, 2])
        told.append("came before" if other.done() else "open")
        if ends == "is given up":
            other.cancel()
        found = await other
        await Holdfast.step("kept", str, found)
        if len(told) < 2:
            raise ValueError("once more")
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=30) == ("came" if ends == "last" else "given up")
    assert set(told) == {"open"}


async def test_concurrent_branches_keep_their_own_values(bench: Bench) -> None:
    taken: list[list[str]] = []

    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        return i

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[str]:
        async def branch(i: int) -> str:
            if i % 2:
                await leaf(i)
            return str(current().uuid())

        now, chance = current().now(), current().random()
        found = [str(now), str(chance), *await asyncio.gather(*(branch(i) for i in range(6)))]
        taken.append(found)
        await Holdfast.step("kept", str)
        if len(taken) < 3:
            raise ValueError("once more")
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        found = await task.result(timeout=60)
    assert all(one == found for one in taken)
    assert len(set(found)) == 8


async def test_a_join_that_is_nearly_complete_waits_in_peace(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_LINGER", 0.0)
    go = asyncio.Event()
    looks: list[int] = []
    store = await bench.store()
    news = store.news

    async def counted(*args, **kwargs):
        looks.append(1)
        return await news(*args, **kwargs)

    monkeypatch.setattr(store, "news", counted)

    @bench.app.durable(name="leaf")
    async def leaf(i: int) -> int:
        if i == 3:
            await go.wait()
        return i

    @bench.app.durable(name="root")
    async def root() -> list[int]:
        return await leaf.map(range(4))

    async with bench.worker():
        task = await bench.app.dispatch(root)

        async def three() -> bool:
            found = (await bench.app.list_tasks(type="leaf", status="done")).tasks
            return len(found) == 3

        await until(three)
        await waits(bench, task)
        before = len(looks)
        await asyncio.sleep(0.3)
        assert len(looks) - before < 5
        assert await status(bench, task) == "waiting"
        go.set()
        assert await task.result(timeout=60) == [0, 1, 2, 3]


async def test_results_that_are_large_together_are_still_recorded(bench: Bench) -> None:
    @bench.app.durable(name="large")
    async def large(i: int) -> str:
        return str(i) * 400_000

    @bench.app.durable(name="root")
    async def root() -> int:
        found = await large.map(range(5))
        found += await asyncio.gather(*(large(i) for i in range(5)))
        await Holdfast.step("kept", str)
        return sum(map(len, found))

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == 4_000_000


async def test_a_failing_step_beside_others_runs_again_and_the_others_do_not(
    bench: Bench,
) -> None:
    ran: list[str] = []

    async def effect(name: str) -> str:
        ran.append(name)
        if name == "bad" and ran.count("bad") == 1:
            raise ValueError("not yet")
        return name

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[Any]:
        found = await asyncio.gather(
            *(Holdfast.step(name, effect, name) for name in ("a", "bad", "b")),
            return_exceptions=True,
        )
        for one in found:
            if isinstance(one, StepFailed):
                raise one
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=60) == ["a", "bad", "b"]
    assert sorted(ran) == ["a", "b", "bad", "bad"]


async def test_a_plain_function_that_makes_asyncio_tasks_pays_for_no_flow(bench: Bench) -> None:
    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    @bench.app.durable(name="plain")
    async def plain() -> bool:
        assert sum(await asyncio.gather(one(), one())) == 2
        return current().keeper.has_asked

    async with bench.worker():
        task = await bench.app.dispatch(plain)
        assert await task.result(timeout=60) is False


async def test_branches_that_are_older_than_the_first_ask_are_known_again(
    bench: Bench,
) -> None:
    """They were made while there was no flow yet, and ask only later."""
    go = asyncio.Event()

    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i

    async def branch(i: int) -> int:
        await go.wait()
        found = await child(i)
        await Holdfast.sleep(0.01)
        return found + await child(10 * i)

    @bench.app.durable(name="flow")
    async def flow() -> list[int]:
        branches = [asyncio.create_task(branch(i)) for i in (1, 2)]
        await asyncio.sleep(0)
        go.set()
        return list(await asyncio.gather(*branches))

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == [11, 22]
    assert number_of(bench, "child") == 4


async def test_whatever_is_completed_next_comes_from_where_it_was_asked(bench: Bench) -> None:
    """`as_completed` makes its tasks in no order: they are known again all the same."""
    attempts: list[int] = []

    async def work(i: int) -> int:
        await Holdfast.sleep(0.01 * i)
        return int(await Holdfast.step("same", lambda: i))

    @bench.app.durable(name="double")
    async def double(i: int) -> int:
        return 2 * i

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> list[list[int]]:
        attempts.append(1)
        litter = [object() for _ in range(len(attempts) * 7)]  # other addresses each time
        found = [await one for one in asyncio.as_completed([work(i) for i in range(5, 0, -1)])]
        calls = [double(i) for i in range(10)]
        children = [await one for one in asyncio.as_completed(calls)]
        if len(attempts) < 3:
            raise ValueError("once more")
        return [found, sorted(children), [len(litter)]]

    async with bench.worker():
        task = await bench.app.dispatch(root)
        found = await task.result(timeout=30)
    assert sorted(found[0]) == [1, 2, 3, 4, 5]
    assert found[1] == list(range(0, 20, 2))
    assert number_of(bench, "double") == 10


async def test_the_time_of_as_completed_outlives_being_put_down(bench: Bench) -> None:
    @bench.app.durable(name="root")
    async def root() -> str:
        waits = [Holdfast.wait_for_signal("never"), Holdfast.wait_for_signal("nor this")]
        try:
            for one in asyncio.as_completed(waits, timeout=1.5):
                await one
        except TimeoutError:
            return "timeout"
        return "no"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == "timeout"


async def test_a_step_sees_the_variables_of_the_code_that_asks_for_it(bench: Bench) -> None:
    """Alone, and beside others; set before the first ask or after it."""
    name: ContextVar[str] = ContextVar("name", default="nobody")

    @bench.app.durable(name="root")
    async def root() -> list[str]:
        async def as_(who: str) -> list[str]:
            name.set(who)
            first = await Holdfast.step("async", _get)
            return [first, await Holdfast.step("sync", name.get)]

        async def _get() -> str:
            return name.get()

        name.set("first")
        found = [await Holdfast.step("alone", name.get)]
        name.set("second")
        found += [await Holdfast.step("again", name.get)]
        for each in await asyncio.gather(as_("a"), as_("b")):
            found += each
        return found

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=20) == ["first", "second", "a", "a", "b", "b"]
