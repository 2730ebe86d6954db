"""Mistakes that people make inside of durable functions: each is told what to do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed
from tests.flow.acts import ONCE
from tests.work.bench import Bench


def _number() -> int:
    return "seven"  # type: ignore[return-value]


async def _nothing() -> None: ...


_step: Any = Holdfast.step
_run: Any = Holdfast.run
_gather: Any = Holdfast.gather
_map: Any = Holdfast.map


def _runs_a_loop_of_its_own(child: Any) -> Any:
    return asyncio.run(child(1))


def _returns_what_it_should_run(child: Any) -> Any:
    return Holdfast.step("one", str, 1)


def _runs_what_has_run(child: Any) -> Any:
    return _run(len("a result"))


def _gathers_what_has_run(child: Any) -> Any:
    return _run(_gather(1, 2))


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (_runs_a_loop_of_its_own, "use Holdfast.run(...) instead of asyncio.run"),
        (_returns_what_it_should_run, "Holdfast.run("),
        (_runs_what_has_run, "write run(charge.call(7))"),
        (_gathers_what_has_run, "got int (of sync functions: f.call(1))"),
    ],
)
async def test_a_sync_function_runs_what_it_asks_for(
    bench: Bench, body: Callable[[Any], Any], advice: str
) -> None:
    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i

    @bench.app.durable(name="root", retry_policy=ONCE)
    def root() -> Any:
        return body(child)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=30)
    assert advice in str(failed.value)


async def test_a_steps_result_that_does_not_fit_names_the_step(bench: Bench) -> None:
    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> int:
        return await Holdfast.step("how many", _number)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed, match="step 'how many' ran, but its result does not fit"):
            await task.result(timeout=30)


@pytest.mark.parametrize(
    ("ask", "advice"),
    [
        (
            lambda child: _step("one", _nothing()),
            'as step\\("pay", pay, 7\\); got coroutine',
        ),
        (lambda child: _step("one", 7), "got int instead of a function"),
        (lambda child: child.starmap([1, 2]), "for one argument each there is map"),
        (lambda child: _map(_number, [1]), "map takes a durable function"),
        (lambda child: Holdfast.patched(""), "name of a patch must be a text"),
        (lambda child: child.options(conn=object())(1), "conn= is for app.dispatch"),
        (lambda child: child.options(conn=object()).map([1]), "conn= is for app.dispatch"),
    ],
    ids=[
        "a call",
        "no function",
        "no tuples",
        "no durable function",
        "no name",
        "a connection",
        "a connection for many",
    ],
)
async def test_what_is_asked_for_in_a_wrong_way_is_shown_how(
    bench: Bench, ask: Callable[[Any], Any], advice: str
) -> None:
    @bench.app.durable(name="child")
    async def child(i: int) -> int:
        return i

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> None:
        await ask(child)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        with pytest.raises(TaskFailed, match=advice):
            await task.result(timeout=30)
