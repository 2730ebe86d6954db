"""Code that changed under a run: it finishes right, or is parked with what does not fit."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from holdfast import Holdfast, NonRetryable, Snooze, TaskCancelled
from holdfast.flow import arrivals
from holdfast.store import Store
from holdfast.tasks.task import TaskStatus
from tests.flow.acts import ONCE, SOON, journal, number_of, reason_of, status, waits
from tests.flow.test_done_to_its_end import SlowToAnswer
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


@pytest.mark.parametrize("asks", [False, True], ids=["ends", "asks"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
async def test_what_a_run_dispatched_before_it_was_parked_is_not_dispatched_again(
    bench: Bench, no_linger: None, asks: bool, beside: bool
) -> None:
    """Each retry did."""

    def app_with(*, tells: bool, goes_on: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other() -> None: ...

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            await step("a")
            listening = asyncio.create_task(_signal()) if beside else None
            if tells:
                await app.dispatch(other)
            if goes_on:
                await step("b")
            elif asks:
                await step("c")
            else:
                return "too early"
            return str(await (listening or _signal()))

        return app, root

    app, root = app_with(tells=False, goes_on=True)
    async with bench.worker(app, queues=["default"]):
        task = await app.dispatch(root)

        async def listens() -> bool:
            return "step b" in await journal(bench, task) and "signal" in await reason_of(
                bench, task
            )

        await until(listens)
        await bench.app.send_signal(task, "go", "on")
    for _ in range(3):
        async with bench.worker(app_with(tells=True, goes_on=False)[0], queues=["default"]):

            async def parked() -> bool:
                return "recorded, not asked: step b" in await reason_of(bench, task)

            await until(parked)
        assert number_of(bench, "other") == 1
        assert await bench.app.retry(task)
    async with bench.worker(app_with(tells=True, goes_on=True)[0], queues=["default"]):
        assert await task.result(timeout=20) == "on"
    assert number_of(bench, "other") == 1


async def test_a_run_that_is_parked_dispatches_nothing_more(bench: Bench, no_linger: None) -> None:
    """What a branch began while the run was being parked was known to nobody."""

    def app_with(*, fits: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other(number: int) -> None: ...

        async def tell() -> None:
            for number in range(5):
                await app.dispatch(other, number)

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            await step("a")
            telling = None if fits else asyncio.create_task(tell())
            if telling:
                await asyncio.sleep(0.3)  # in the middle of a dispatch
                return "too early"
            await step("b")
            return str(await _signal())

        return app, root

    app, root = app_with(fits=True)
    async with bench.worker(app, queues=["default"]):
        task = await app.dispatch(root)
        await waits(bench, task)
    for so_often in range(1, 4):
        await _is_parked(bench, task, app_with(fits=False)[0])
        assert number_of(bench, "other") == so_often


async def test_what_is_given_up_by_a_run_that_is_parked_is_not(
    bench: Bench, no_linger: None
) -> None:
    """The mended code has its child still, although what was dispatched meanwhile is kept."""

    def app_with(*, fits: bool) -> tuple[Any, Any]:
        app = bench.new_app()

        @app.durable(name="other", queue="nobody")
        async def other() -> None: ...

        @app.durable(name="charge", queue="nobody")
        async def charge() -> int:
            return 7

        async def pay() -> int:
            return await charge()

        async def tell() -> None:
            await app.dispatch(other)

        @app.durable(name="root", retry_policy=ONCE)
        async def root() -> str:
            await step("a")
            paying = asyncio.create_task(pay())
            telling = None if fits else asyncio.create_task(tell())
            if telling:
                await asyncio.sleep(0.3)  # in the middle of a dispatch
                paying.cancel()
                return "too early"
            await step("b")
            return f"{await _signal()} {await paying}"

        return app, root

    app, root = app_with(fits=True)
    async with bench.worker(app, queues=["default"]):
        task = await app.dispatch(root)
        await waits(bench, task)
    await _is_parked(bench, task, app_with(fits=False)[0])
    assert number_of(bench, "other") == 1
    await bench.app.send_signal(task, "go", "on")
    async with bench.worker(app_with(fits=True)[0], queues=["default", "nobody"]):
        assert await task.result(timeout=30) == "on 7"
    assert number_of(bench, "charge") == 1


async def _is_parked(bench: Bench, task: Any, app: Any) -> None:
    """By a worker of this app, whose dispatches take a while; and it is retried."""
    await bench.app.send_signal(task, "stir", "it")
    client = await app.home.client()
    slow = SlowToAnswer(client.store)
    slow.after = 0.6
    client.store = cast(Store, slow)
    async with bench.worker(app, queues=["default"]):

        async def parked() -> bool:
            return "recorded, not asked: step b" in await reason_of(bench, task)

        await until(parked)
    assert await bench.app.retry(task)


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
