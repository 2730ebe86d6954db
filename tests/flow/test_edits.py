"""Code that changed under a run: it finishes right, or is parked with what does not fit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Holdfast, Snooze, TaskCancelled
from holdfast.flow import arrivals
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import journal, reason_of, status, waits
from tests.work.bench import Bench, until

Body = Callable[[Any, Any], Awaitable[Any]]
ran: list[str] = []


async def effect(name: str) -> str:
    ran.append(name)
    return name


async def step(name: str, argument: str | None = None) -> str:
    return str(await Holdfast.step(name, effect, argument or name))


async def old(child: Any, _: Any) -> list[Any]:
    return [await step("a"), await child(1), await step("b"), await _signal(), await step("c")]


async def _signal() -> Any:
    return await Holdfast.wait_for_signal("go")


async def added_behind(child: Any, _: Any) -> list[Any]:
    return [*await old(child, _), await step("d")]


async def added_before(child: Any, _: Any) -> list[Any]:
    return [await step("new"), *await old(child, _)]


async def added_before_patched(child: Any, _: Any) -> list[Any]:
    if Holdfast.patched("new"):
        await step("new")
    return await old(child, _)


async def removed(child: Any, _: Any) -> list[Any]:
    return [await step("a"), await child(1), await _signal(), await step("c")]


async def removed_child(child: Any, _: Any) -> list[Any]:
    return [await step("a"), await step("b"), await _signal(), await step("c")]


async def reordered(child: Any, _: Any) -> list[Any]:
    return [await step("a"), await step("b"), await child(1), await _signal(), await step("c")]


async def renamed(child: Any, _: Any) -> list[Any]:
    return [await step("A", "a"), await child(1), await step("b"), await _signal(), await step("c")]


async def other_arguments(child: Any, _: Any) -> list[Any]:
    return [await step("a"), await child(2), await step("b"), await _signal(), await step("c")]


async def renamed_child(_: Any, other: Any) -> list[Any]:
    return await old(other, _)


async def ends_early(child: Any, _: Any) -> list[Any]:
    return [await step("a")]


async def begins_anew(child: Any, _: Any) -> None:
    await step("a")
    await Holdfast.continue_as_new()


FITS = [old, added_behind, added_before_patched, reordered]
PARKS: list[tuple[Body, str, str | None]] = [
    (added_before, "step a", "step new"),
    (removed, "step b", None),
    (removed_child, "child", None),
    (renamed, "step a", "step A"),
    (other_arguments, "child, with other arguments (", "child, with other arguments ("),
    (renamed_child, "child", "other"),
    (ends_early, "step b", None),
    (begins_anew, "step b", None),
]


def _app(bench: Bench, body: Body) -> Any:
    app = bench.new_app()

    @app.durable(name="child")
    async def child(i: int) -> int:
        return i

    @app.durable(name="other")
    async def other(i: int) -> int:
        return i

    @app.durable(name="root")
    async def root() -> Any:
        return await body(child, other)

    return app, root


async def _in_flight(bench: Bench) -> Any:
    ran.clear()
    app, root = _app(bench, old)
    async with bench.worker(app):
        task = await app.dispatch(root)

        async def waits() -> bool:
            return "signal go" in await reason_of(bench, task)

        await until(waits)
    return task


@pytest.mark.parametrize("body", FITS, ids=lambda body: body.__name__)
async def test_an_edit_that_fits_finishes_right(bench: Bench, no_linger: None, body: Body) -> None:
    task = await _in_flight(bench)
    app, _ = _app(bench, body)
    async with bench.worker(app):
        await app.send_signal(task, "go", "on")
        found = await task.result(timeout=60)
    want: list[Any] = ["a", 1, "b", "on", "c"]
    if body is added_behind:
        want.append("d")
    if body is reordered:
        want[1:3] = want[2:0:-1]
    assert found == want
    assert ran == [one for one in ["a", "b", "c", "d"] if one in want]


@pytest.mark.parametrize(
    ("body", "recorded", "asked"), PARKS, ids=lambda b: getattr(b, "__name__", "")
)
async def test_an_edit_that_does_not_fit_is_parked_and_released_when_it_is_mended(
    bench: Bench, no_linger: None, body: Body, recorded: str, asked: str | None
) -> None:
    task = await _in_flight(bench)
    before = await journal(bench, task)
    app, _ = _app(bench, body)
    async with bench.worker(app):
        await app.send_signal(task, "go", "on")

        async def parked() -> bool:
            return (await reason_of(bench, task)).startswith("parked")

        await until(parked)
    reason = await reason_of(bench, task)
    assert f"- recorded, not asked: {recorded}" in reason
    assert asked is None or f"+ asked, not recorded: {asked}" in reason
    assert ran == ["a", "b"]
    assert await journal(bench, task) == before
    app, _ = _app(bench, old)
    assert await app.retry(task)
    async with bench.worker(app):
        assert await task.result(timeout=60) == ["a", 1, "b", "on", "c"]
    assert ran == ["a", "b", "c"]


async def test_a_snooze_keeps_what_is_recorded(bench: Bench, no_linger: None) -> None:
    """It is an attempt that ends early: code that snoozes first is in no disagreement."""
    task = await _in_flight(bench)
    snoozed: list[int] = []

    async def snoozes(child: Any, _: Any) -> list[Any]:
        if not snoozed:
            snoozed.append(1)
            raise Snooze(0.01)
        return await old(child, _)

    app, _ = _app(bench, snoozes)
    async with bench.worker(app):
        await app.send_signal(task, "go", "on")
        assert await task.result(timeout=60) == ["a", 1, "b", "on", "c"]
    assert ran == ["a", "b", "c"]


async def test_what_is_parked_can_be_cancelled(bench: Bench, no_linger: None) -> None:
    task = await _in_flight(bench)
    app, _ = _app(bench, renamed)
    async with bench.worker(app):
        await app.send_signal(task, "go", "on")

        async def parked() -> bool:
            return (await reason_of(bench, task)).startswith("parked")

        await until(parked)
        await asyncio.sleep(0.1)
        assert await status(bench, task) is TaskStatus.WAITING
        assert await app.cancel(task) == "cancelled"
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_patched_gives_a_run_one_answer_however_often_it_comes_by(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_LINGER", 0.0)
    is_new: list[bool] = []
    given: list[int] = []

    @bench.app.durable(name="days")
    async def days() -> str:
        for day in range(3):
            await Holdfast.step(f"mail {day}", str)
            if is_new and Holdfast.patched("gifts"):
                await Holdfast.step(f"gift {day}", given.append, day)
            await Holdfast.wait_for_signal("next")
        return "over"

    async with bench.worker():
        task = await bench.app.dispatch(days)
        await waits(bench, task)
        is_new.append(True)
        for day in range(1, 4):
            await bench.app.send_signal(task, "next")

            async def has_gone_on(day: int = day) -> bool:
                return day == 3 or f"step mail {day}" in await journal(bench, task)

            await until(has_gone_on)
            if day < 3:
                await waits(bench, task)
        assert await task.result(timeout=30) == "over"
    assert given == []
