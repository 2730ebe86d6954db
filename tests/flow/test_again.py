"""What failed and was not acted on runs again: in the next attempt, and in the next life."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed
from holdfast.errors import InvalidInput, StepFailed
from tests.flow.acts import ONCE, number_of, open_children
from tests.work.bench import Bench, until

Ask = Callable[[str], Awaitable[Any]]
NAMES = ("a", "b", "c", "d", "e")


def policy(tries: int) -> RetryPolicy:
    return RetryPolicy(max_attempts=tries, initial_delay=0.0, jitter=0.0)


class Flaky:
    """Fails so many times for each name."""

    def __init__(self, **fails: int) -> None:
        self.fails, self.calls = fails, Counter[str]()

    async def __call__(self, name: str) -> str:
        self.calls[name] += 1
        if self.calls[name] <= self.fails.get(name, 0):
            raise ConnectionError(f"{name} is down for a moment")
        return name


async def gather(ask: Ask) -> list[Any]:
    return list(await asyncio.gather(*map(ask, NAMES)))


async def ours(ask: Ask) -> list[Any]:
    return await Holdfast.gather(*map(ask, NAMES))


async def group(ask: Ask) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_branch(ask, name)) for name in NAMES]
    return [task.result() for task in tasks]


async def wait(ask: Ask) -> list[Any]:
    tasks = [asyncio.create_task(_branch(ask, name)) for name in NAMES]
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def exceptions(ask: Ask) -> list[Any]:
    found = await asyncio.gather(*map(ask, NAMES), return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


async def another_error(ask: Ask) -> list[Any]:
    found = await asyncio.gather(*map(ask, NAMES), return_exceptions=True)
    if any(isinstance(one, BaseException) for one in found):
        raise LookupError("some are missing")
    return found


async def nested(ask: Ask) -> list[Any]:
    first, second = await asyncio.gather(asyncio.gather(*map(ask, NAMES[:2])), _all(ask, NAMES[2:]))
    return [*first, *second]


async def timed(ask: Ask) -> list[Any]:
    async with asyncio.timeout(600):
        return await asyncio.wait_for(gather(ask), 600)


async def _branch(ask: Ask, name: str) -> Any:
    return await ask(name)


async def _all(ask: Ask, names: tuple[str, ...]) -> list[Any]:
    return list(await asyncio.gather(*map(ask, names)))


SHAPES = [gather, ours, group, wait, exceptions, another_error, nested, timed]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
async def test_steps_that_fail_side_by_side_need_no_more_tries_than_the_worst(
    bench: Bench, shape: Any
) -> None:
    flaky = Flaky(a=1, b=2, c=0, d=1, e=2)

    @bench.app.durable(name="flow", retry_policy=policy(3))
    async def flow() -> Any:
        return await shape(lambda name: Holdfast.step(name, flaky, name))

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == [*NAMES]
    assert flaky.calls == {"a": 2, "b": 3, "c": 1, "d": 2, "e": 3}


@pytest.mark.parametrize("shape", [*SHAPES, "map", "some"], ids=lambda s: getattr(s, "__name__", s))
async def test_a_fan_out_is_resumed_with_one_retry_and_no_child_is_made_anew(
    bench: Bench, shape: Any
) -> None:
    """All that fail had come when the function ended: else they are cancelled, and run then."""
    flaky, mended = Flaky(), asyncio.Event()

    @bench.app.durable(name="child", retry_policy=ONCE)
    async def child(name: str) -> str:
        if name in "bd" and not mended.is_set():
            flaky.calls[name] += 1
            raise ConnectionError("down")
        return await flaky(name)

    @bench.app.durable(name="flow", retry_policy=policy(3))
    async def flow() -> Any:
        if shape == "map":
            return await child.map(NAMES)
        if shape == "some":
            return await child.map(NAMES, at_most=2)
        return await shape(child)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        before = Counter(flaky.calls)
        mended.set()
        assert await bench.app.retry(task)
        assert await task.result(timeout=60) == [*NAMES]
    for name in NAMES:
        failures = before[name] if name in "bd" else 0
        assert flaky.calls[name] == failures + 1, name
    assert number_of(bench, "child") == len(NAMES)
    assert max(before.values()) == 1  # in its first life nothing was tried twice


async def test_a_late_cancel_of_a_former_life_does_not_reach_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker ends the parent first, and then cancels what it left: by now it is awaited."""
    calls = Counter[str]()
    fails, lives, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    comes, came = asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="child", retry_policy=ONCE)
    async def child(name: str) -> str:
        calls[name] += 1
        if calls[name] == 1:
            if name == "slow":
                await fails.wait()
            raise ConnectionError("down")
        if name == "slow":
            lives.set()
            await go_on.wait()
        return name

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> Any:
        return await Holdfast.gather(child("quick"), child("slow"))

    async with bench.worker():
        store = await bench.store()
        real = store.cancel

        async def cancel(tasks: Any, **how: Any) -> Any:
            await comes.wait()
            try:
                return await real(tasks, **how)
            finally:
                came.set()

        monkeypatch.setattr(store, "cancel", cancel)
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        fails.set()
        await until(lambda: open_children(bench) == 0)
        assert await bench.app.retry(task)
        await asyncio.wait_for(lives.wait(), 60)
        comes.set()
        await asyncio.wait_for(came.wait(), 60)
        await asyncio.sleep(0.5)  # in which it would hear of it
        go_on.set()
        assert await task.result(timeout=60) == ["quick", "slow"]


async def test_a_branch_that_goes_on_does_not_act_on_the_failures_of_others(bench: Bench) -> None:
    flaky = Flaky(a=1, z=1)

    async def chain() -> str:
        for name in ("x", "y"):
            await Holdfast.step(name, flaky, name)
            await Holdfast.sleep(0.01)
        return str(await Holdfast.step("z", flaky, "z"))

    @bench.app.durable(name="flow", retry_policy=policy(2))
    async def flow() -> list[Any]:
        found = await asyncio.gather(
            chain(), Holdfast.step("a", flaky, "a"), return_exceptions=True
        )
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return list(found)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["z", "a"]
    assert flaky.calls == {"x": 1, "y": 1, "z": 2, "a": 2}


async def test_what_was_undone_is_not_done_again_when_something_else_fails(bench: Bench) -> None:
    """The failure was acted on: it stays, though its error was being handled at the end."""
    flaky = Flaky(pay=1, release=1, tell=1)

    @bench.app.durable(name="book", retry_policy=policy(3))
    async def book() -> str:
        try:
            await asyncio.gather(*(Holdfast.step(n, flaky, n) for n in ("seat", "pay")))
        except StepFailed:
            await Holdfast.step("release", flaky, "release")
            await asyncio.gather(Holdfast.step("tell", flaky, "tell"))
            return "off"
        return "on"

    async with bench.worker():
        task = await bench.app.dispatch(book)
        assert await task.result(timeout=60) == "off"
    assert flaky.calls == {"seat": 1, "pay": 1, "release": 2, "tell": 2}


async def test_whoever_hears_of_a_failure_elsewhere_may_act_on_it(bench: Bench) -> None:
    """Two branches wait for the same one: what one of them did about it stands."""
    flaky = Flaky(shared=1, late=1)

    @bench.app.durable(name="flow", retry_policy=policy(2))
    async def flow() -> list[Any]:
        shared = asyncio.create_task(Holdfast.step("shared", flaky, "shared"))

        pause = asyncio.create_task(Holdfast.sleep(0.02))

        async def careful() -> Any:
            try:
                return await shared
            except StepFailed:
                await pause
                return await Holdfast.step("instead", flaky, "instead")

        async def late() -> Any:
            await Holdfast.sleep(0.1)
            return await Holdfast.step("late", flaky, "late")

        return list(await asyncio.gather(careful(), late()))

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["instead", "late"]
    assert flaky.calls == {"shared": 1, "instead": 1, "late": 2}


@pytest.mark.parametrize("how", ["coroutine", "thread"])
@pytest.mark.parametrize("shape", ["gather", "group"])
async def test_a_step_under_way_is_waited_for_when_another_fails(
    bench: Bench, how: str, shape: str
) -> None:
    calls: Counter[str] = Counter()
    begun, go = threading.Event(), threading.Event()
    cancelled: list[str] = []

    def in_a_thread() -> str:
        calls["slow"] += 1
        begun.set()
        assert go.wait(60)
        return "slow"

    async def coroutine() -> str:
        calls["slow"] += 1
        begun.set()
        try:
            await until(go.is_set)
        except asyncio.CancelledError:
            cancelled.append("slow")
            raise
        return "slow"

    async def fails() -> str:
        await until(begun.is_set)
        calls["fails"] += 1
        if calls["fails"] == 1:
            asyncio.get_running_loop().call_later(0.1, go.set)
            raise ConnectionError("down")
        return "fine"

    @bench.app.durable(name="flow", retry_policy=policy(2))
    async def flow() -> list[Any]:
        asks = [
            Holdfast.step("slow", in_a_thread if how == "thread" else coroutine),
            Holdfast.step("fails", fails),
        ]
        if shape == "gather":
            return list(await asyncio.gather(*asks))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask) for ask in asks]
        return [task.result() for task in tasks]

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["slow", "fine"]
    assert calls == {"fails": 2, "slow": 1 + len(cancelled)}
    assert bool(cancelled) == ((how, shape) == ("coroutine", "group"))


async def test_a_race_before_a_failure_is_won_by_the_same_one_afterwards(bench: Bench) -> None:
    """Answers that are younger than the failure are not told before those that are older."""
    flaky, won = Flaky(bad=2), []

    @bench.app.durable(name="flow", retry_policy=policy(3))
    async def flow() -> Any:
        order = [asyncio.create_task(Holdfast.step(n, flaky, n)) for n in ("x", "bad", "y")]
        done, _ = await asyncio.wait(order, return_when=asyncio.FIRST_COMPLETED)
        won.append(sorted(order.index(task) for task in done))
        return list(await asyncio.gather(*order))

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["x", "bad", "y"]
    assert won == [won[0]] * 3
    assert flaky.calls == {"x": 1, "bad": 3, "y": 1}


async def test_a_child_that_failed_for_good_is_not_tried_again_by_the_next_attempt(
    bench: Bench,
) -> None:
    calls: Counter[str] = Counter()

    @bench.app.durable(name="child", retry_policy=policy(2))
    async def child() -> str:
        calls["child"] += 1
        if calls["child"] <= 2:
            raise ValueError("no way")
        return "child"

    @bench.app.durable(name="flow", retry_policy=policy(3))
    async def flow() -> str:
        try:
            return await child()
        except TaskFailed as failed:
            raise LookupError("not found") from failed

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed, match="not found"):
            await task.result(timeout=60)
        assert (await bench.ends(task)).count("retry") == 2
        assert calls["child"] == 2
        assert await bench.app.retry(task)
        assert await task.result(timeout=60) == "child"
    assert calls["child"] == 3
    assert number_of(bench, "child") == 1


async def test_a_child_that_was_told_to_end_and_has_not_yet_gets_its_new_life(
    bench: Bench,
) -> None:
    """The function is retried while its child, which was cancelled with it, still runs."""
    begun, go, calls = asyncio.Event(), asyncio.Event(), Counter[str]()

    @bench.app.durable(name="stubborn")
    async def stubborn() -> str:
        calls["stubborn"] += 1
        begun.set()
        try:
            await asyncio.Event().wait() if calls["stubborn"] == 1 else None
        except asyncio.CancelledError:
            await go.wait()
            raise
        return "at last"

    async def fails() -> str:
        await begun.wait()
        calls["fails"] += 1
        if calls["fails"] == 1:
            raise ConnectionError("down")
        return "fine"

    @bench.app.durable(name="flow", retry_policy=ONCE)
    async def flow() -> list[Any]:
        return list(await asyncio.gather(stubborn(), Holdfast.step("fails", fails)))

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        (below,) = (await bench.app.list_tasks(type="stubborn")).tasks

        async def is_told() -> bool:
            return (await (await bench.store()).get(below.id)).cancel_requested

        await until(is_told)
        assert await bench.app.retry(task)
        await until(lambda: calls["fails"] == 2)
        go.set()
        assert await task.result(timeout=60) == ["at last", "fine"]
    assert number_of(bench, "stubborn") == 1


async def test_a_child_that_was_given_up_because_of_a_failure_goes_on_without_it(
    bench: Bench, no_linger: None
) -> None:
    flaky, begun, go = Flaky(bad=1), asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="child", queue="children")
    async def child() -> str:
        begun.set()
        await go.wait()
        return "child"

    async def bad() -> str:
        await begun.wait()
        return await flaky("bad")

    async def tell() -> None:
        go.set()

    @bench.app.durable(name="flow", retry_policy=policy(2))
    async def flow() -> list[Any]:
        below = asyncio.create_task(child())
        first = asyncio.create_task(Holdfast.step("bad", bad))
        await asyncio.wait({first})
        if first.exception():
            below.cancel()
            await Holdfast.sleep(0.02)
            await Holdfast.step("tell", tell)
        return [first.result(), await below]

    async with bench.worker(max_concurrency=1), bench.worker(queues=["children"]):
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["bad", "child"]
    assert number_of(bench, "child") == 1


async def test_answers_that_are_told_again_keep_their_new_order(bench: Bench) -> None:
    """In the second attempt what had succeeded comes first, and does so in the third."""
    flaky, orders = Flaky(bad=1), []

    @bench.app.durable(name="flow", retry_policy=policy(3))
    async def flow() -> Any:
        tasks = {
            asyncio.create_task(Holdfast.step(name, flaky, name), name=name)
            for name in ("bad", "good")
        }
        order: list[str] = []
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            order += sorted(task.get_name() for task in done)
            for task in done:
                task.result()
        await Holdfast.step("order", flaky, "/".join(order))
        orders.append(order)
        if len(orders) == 1:
            raise LookupError("once more")
        return order

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == orders[0]
    assert flaky.calls == {"bad": 2, "good": 1, "/".join(orders[0]): 1}


async def test_a_function_is_not_put_down_while_a_step_cannot_be_stopped(
    bench: Bench, no_linger: None
) -> None:
    flaky, begun, go = Flaky(bad=1), threading.Event(), threading.Event()

    def slow() -> str:
        flaky.calls["slow"] += 1
        begun.set()
        assert go.wait(60)
        return "slow"

    async def bad() -> str:
        await until(begun.is_set)
        asyncio.get_running_loop().call_later(0.2, go.set)
        return await flaky("bad")

    async def group() -> list[Any]:
        async with asyncio.TaskGroup() as group:
            asks = [("slow", slow), ("bad", bad)]
            tasks = [group.create_task(Holdfast.step(name, act)) for name, act in asks]
        return [task.result() for task in tasks]

    @bench.app.durable(name="flow", retry_policy=policy(2))
    async def flow() -> list[Any]:
        found = await asyncio.gather(group(), Holdfast.sleep(0.5), return_exceptions=True)
        if isinstance(found[0], BaseException):
            raise found[0]
        return list(found[0])

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        assert await task.result(timeout=60) == ["slow", "bad"]
    assert flaky.calls == {"slow": 1, "bad": 2}


async def test_a_call_that_is_refused_is_nothing_that_was_done_about_a_failure(bench: Bench):
    flaky = Flaky(a=1)

    @bench.app.durable(concurrency_key="key", max_concurrent=1)
    async def keyed(key: str) -> None: ...

    @bench.app.durable(retry_policy=policy(3))
    async def parent() -> Any:
        try:
            return (await asyncio.gather(Holdfast.step("a", flaky, "a"), Holdfast.sleep(0.2)))[0]
        except StepFailed:
            with pytest.raises(InvalidInput):
                await keyed("k" * 3000)
            raise RuntimeError("nothing was done") from None

    await bench.start()
    assert await (await bench.app.dispatch(parent)).result(timeout=30) == "a"
    assert flaky.calls["a"] == 2
