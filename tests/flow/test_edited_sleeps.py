"""Waits whose code changed under a run: each keeps the time that it began with."""

import asyncio
import random
from typing import Any

import pytest

from holdfast import Holdfast, NonRetryable, Snooze
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import ONCE, SOON, journal, number_of, reason_of, status, waits
from tests.flow.test_edits import ran, step
from tests.work.bench import Bench, until


async def _sleeps(seconds: float) -> None:
    await Holdfast.sleep(seconds)


async def _waits_long(seconds: float) -> None:
    await Holdfast.wait_for_signal("go", timeout=seconds)


async def _waits_for_ever(_: float) -> None:
    await Holdfast.wait_for_signal("go")


async def _waits_for_another(_: float) -> None:
    await Holdfast.wait_for_signal("come")


@pytest.mark.parametrize(
    ("before", "began_with", "after", "today"),
    [
        (_sleeps, 1.0, _sleeps, 3600.0),
        (_waits_long, 1.0, _waits_long, 3600.0),
    ],
    ids=["sleep", "timeout"],
)
async def test_what_is_waited_for_keeps_the_time_that_it_began_with(
    bench: Bench, no_linger: None, before: Any, began_with: float, after: Any, today: float
) -> None:
    """A sleep of another length began anew with each look, for ever where its length was random."""

    def app_with(body: Any, seconds: float) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="root")
        async def root() -> str:
            try:
                await body(seconds)
            except TimeoutError:
                return "too late"
            return "slept"

        return app, root

    app, root = app_with(before, began_with)
    async with bench.worker(app):
        task = await app.dispatch(root)
        await waits(bench, task)
    async with bench.worker(app_with(after, today)[0]):
        assert await task.result(timeout=30) == ("slept" if before is _sleeps else "too late")


async def test_a_sleep_of_a_random_length_ends(bench: Bench, no_linger: None) -> None:
    drawn = iter([0.5, 3600.0, 3600.0, 3600.0])

    @bench.app.durable(name="root")
    async def root() -> int:
        await Holdfast.sleep(next(drawn))
        return len(list(drawn))

    async with bench.worker():
        assert await (await bench.app.dispatch(root)).result(timeout=30) == 2


async def test_a_run_may_be_told_to_wait_for_another_signal(bench: Bench, no_linger: None) -> None:
    def app_with(body: Any) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="root")
        async def root() -> str:
            await body(0)
            return "on"

        return app, root

    app, root = app_with(_waits_for_ever)
    async with bench.worker(app):
        task = await app.dispatch(root)
        await waits(bench, task)
    async with bench.worker(app_with(_waits_for_another)[0]):
        await bench.app.send_signal(task, "come")
        assert await task.result(timeout=30) == "on"


@pytest.mark.parametrize("at", [2, 3])
async def test_a_loop_of_sleeps_may_change_its_length(
    bench: Bench, no_linger: None, at: int
) -> None:
    """The first one with the new length was taken for the one that is meant."""

    def app_with(seconds: float) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="root")
        async def root() -> str:
            for turn in range(6):
                await Holdfast.sleep(seconds)
                await step(f"look {turn}")
            return "over"

        return app, root

    app, root = app_with(0.2)
    async with bench.worker(app):
        task = await app.dispatch(root)

        async def has_begun() -> bool:
            return (await journal(bench, task)).count("sleep") >= at

        await until(has_begun)
        await waits(bench, task)
    async with bench.worker(app_with(0.1)[0]):
        assert await task.result(timeout=30) == "over"


async def test_a_loop_may_sleep_for_lengths_that_are_drawn_from_a_few(
    bench: Bench, no_linger: None
) -> None:
    """Each replay draws others, and some of them are lengths of later ones."""
    drawn = random.Random(3)

    @bench.app.durable(name="root")
    async def root() -> str:
        for turn in range(6):
            await Holdfast.sleep(drawn.choice([0.02, 0.04, 0.06]))
            if turn % 2:
                await bench.app.dispatch(other)
            else:
                await step(f"look {turn}")
        return "over"

    @bench.app.durable(name="other")
    async def other() -> None: ...

    async with bench.worker():
        assert await (await bench.app.dispatch(root)).result(timeout=30) == "over"


async def test_who_fails_where_a_sleep_may_be_mistaken_is_tried_again(
    bench: Bench, no_linger: None
) -> None:
    """It had drawn the length of the sleep behind that one, and was parked."""
    lives: list[int] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        await Holdfast.sleep(0.5 if lives else 0.02)  # as if drawn
        lives.append(1)
        if len(lives) == 2:
            raise ConnectionError("the site is down for a moment")
        await Holdfast.sleep(0.5)
        return "over"

    async with bench.worker():
        task = await bench.app.dispatch(root)

        async def is_over() -> bool:
            assert "parked" not in await reason_of(bench, task)
            return await status(bench, task) is TaskStatus.DONE

        await until(is_over)
    assert len(lives) >= 3


async def _ends(app: Holdfast, other: Any) -> None: ...


async def _takes_a_step(app: Holdfast, other: Any) -> None:
    await step("too early")


async def _asks_a_child(app: Holdfast, other: Any) -> None:
    await other()


async def _dispatches(app: Holdfast, other: Any) -> None:
    await app.dispatch(other)


async def _begins_anew(app: Holdfast, other: Any) -> None:
    await Holdfast.continue_as_new()


async def _dispatches_twice(app: Holdfast, other: Any) -> None:
    await asyncio.gather(_dispatches(app, other), _dispatches(app, other))


async def _dispatches_in_time(app: Holdfast, other: Any) -> None:
    await asyncio.wait_for(app.dispatch(other), 10)


async def _fails(app: Holdfast, other: Any) -> None:
    raise NonRetryable("not paid within the hour")


async def _snoozes(app: Holdfast, other: Any) -> None:
    raise Snooze(3600)


GOES_ON = [
    _ends,
    _fails,
    _snoozes,
    _takes_a_step,
    _asks_a_child,
    _dispatches,
    _dispatches_twice,
    _dispatches_in_time,
    _begins_anew,
]


@pytest.mark.parametrize("today", [["1h"], [0.2, "1h"]], ids=["one", "two"])
@pytest.mark.parametrize("goes_on", GOES_ON, ids=lambda it: it.__name__)
async def test_a_sleep_that_was_taken_out_is_not_mistaken_for_another(
    bench: Bench, no_linger: None, goes_on: Any, today: list[Any]
) -> None:
    """The hour would have been over with the moment before it."""
    ran.clear()

    def app_with(lengths: list[Any]) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other")
        async def other() -> None:
            ran.append("too early")

        @app.durable(name="root")
        async def root() -> None:
            for seconds in lengths:
                await Holdfast.sleep(seconds)
            await goes_on(app, other)

        return app, root

    app, root = app_with([0.1, *today])
    async with bench.worker(app):
        task = await app.dispatch(root)

        async def sleeps() -> bool:
            return (await journal(bench, task)).count("sleep") == 1 + len(today)

        await until(sleeps)
        await waits(bench, task)
    async with bench.worker(app_with(today)[0]):
        await bench.app.send_signal(task, "look")

        async def parked() -> bool:
            return "recorded, not asked: sleep of 0." in await reason_of(bench, task)

        await until(parked)
    assert ran == []
    assert number_of(bench, "other") == 0
    async with bench.worker(app_with([0.1, *today])[0]):
        assert await app.retry(task)
        await waits(bench, task)
        assert await reason_of(bench, task) == "sleeps"


async def test_who_dispatches_beside_edited_sleeps_waits_until_the_next_one_is_asked_for(
    bench: Bench, no_linger: None
) -> None:
    """Between the two it is not known yet which of them today's code means."""

    def app_with(first: float, *, tells: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other() -> None: ...

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            slept = asyncio.Event()

            async def tell() -> None:
                await slept.wait()
                if tells:
                    await app.dispatch(other)

            telling = asyncio.create_task(tell())
            await Holdfast.sleep(first)
            slept.set()
            await asyncio.sleep(0.05)
            await Holdfast.sleep(1.0)
            await telling
            return "over"

        return app, root

    app, root = app_with(0.1, tells=False)
    async with bench.worker(app):
        task = await app.dispatch(root)

        async def sleeps() -> bool:
            return (await journal(bench, task)).count("sleep") == 2

        await until(sleeps)
        await waits(bench, task)
    async with bench.worker(app_with(1.0, tells=True)[0], queues=["default"]):
        assert await task.result(timeout=20) == "over"
    assert number_of(bench, "other") == 1
