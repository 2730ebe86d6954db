"""Signals whose payload does not fit `type=`: refused once, and told so in every replay."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed, TaskHandle
from holdfast.errors import PayloadRefused
from tests.flow.acts import ONCE, SOON, journal, waits
from tests.flow.crashing import BOTH_SIDES, Crashing
from tests.work.bench import Bench, until

UNFIT = "; it is used up: retry the task, then send one that fits"


async def test_a_signal_that_does_not_fit_is_used_up_by_the_life_that_it_ends(
    bench: Bench, no_linger: None
) -> None:
    """It was heard again by each try and each new life."""

    @bench.app.durable(name="listen")
    async def listen() -> int:
        return int(await Holdfast.wait_for_signal("n", type=int))

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        for said in ("abc", "def"):
            await bench.app.send_signal(task, "n", said)
            with pytest.raises(TaskFailed, match=r"signal 'n' brought what does not fit"):
                await task.result(timeout=30)
            assert await bench.app.retry(task)
        await bench.app.send_signal(task, "n", 7)
        assert await task.result(timeout=30) == 7


async def test_a_wrong_type_in_todays_code_takes_nothing_from_a_run_that_went_on(
    bench: Bench, no_linger: None
) -> None:
    def app_with(type: type) -> tuple[Holdfast, Any]:
        app = bench.new_app()

        @app.durable(name="root")
        async def root() -> str:
            said: Any = await Holdfast.wait_for_signal("approved", type=type)
            await Holdfast.step("charge", str, said)
            await Holdfast.wait_for_signal("ship")
            return f"shipped {said}"

        return app, root

    app, root = app_with(str)
    async with bench.worker(app):
        task = await app.dispatch(root)
        await bench.app.send_signal(task, "approved", "yes")
        await waits(bench, task)
    async with bench.worker(app_with(int)[0]):
        await bench.app.send_signal(task, "ship")
        with pytest.raises(TaskFailed, match=r"it was heard before: correct its type="):
            await task.result(timeout=30)
    assert await bench.app.retry(task)
    async with bench.worker(app_with(str)[0]):
        assert await task.result(timeout=30) == "shipped yes"


async def _listens() -> int:
    return int(await Holdfast.wait_for_signal("n", type=int))


async def _listens_for_a_time() -> int:
    async with asyncio.timeout(3600):
        return await _listens()


async def _listens_beside_others() -> int:
    listening = asyncio.create_task(_listens())
    await Holdfast.step("x", int)
    await Holdfast.sleep(0.05)
    return await listening


LISTENERS = pytest.mark.parametrize(
    "listens", [_listens, _listens_for_a_time, _listens_beside_others], ids=lambda it: it.__name__
)


async def test_what_was_wrong_with_a_signal_is_told_alike_in_every_replay(
    bench: Bench, no_linger: None
) -> None:
    """The text differed, and whoever told others of it was parked."""

    @bench.app.durable(name="note")
    async def note(text: str) -> str:
        return text

    @bench.app.durable(name="root")
    async def root() -> list[str]:
        told: list[str] = []
        while True:
            try:
                return [*told, str(await _listens())]
            except Exception as error:
                told.append(await note(str(error)))

    async with bench.worker():
        task = await bench.app.dispatch(root)
        for times in (1, 2):
            await waits(bench, task)
            await bench.app.send_signal(task, "n", "seven")

            async def was_told(times: int = times) -> bool:
                return (await journal(bench, task)).count("signal n") > times

            await until(was_told)
        await bench.app.send_signal(task, "n", 7)
        *told, said = await task.result(timeout=30)
    assert said == "7"
    assert len(told) == 2
    assert all(text.endswith(UNFIT) for text in told)


@LISTENERS
async def test_a_new_life_waits_for_the_next_signal(
    bench: Bench, no_linger: None, listens: Callable[[], Awaitable[int]]
) -> None:
    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> int:
        return await listens()

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await bench.app.send_signal(task, "n", "seven")
        with pytest.raises(TaskFailed, match=UNFIT):
            await task.result(timeout=30)
        assert not await bench.app.send_signal(task, "n", 7)
        assert await bench.app.retry(task)
        await bench.app.send_signal(task, "n", 7)
        assert await task.result(timeout=30) == 7


async def test_the_next_try_waits_for_the_next_signal(bench: Bench, no_linger: None) -> None:
    """Also where the error is another's, in whose cause it does not stand."""
    tries: list[int] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> int:
        tries.append(1)
        try:
            return await _listens_for_a_time()
        except Exception:
            raise ValueError("once more") from None

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await bench.app.send_signal(task, "n", "seven")
        await bench.app.send_signal(task, "n", 7)
        assert await task.result(timeout=30) == 7
    assert len(tries) < 4


@pytest.mark.parametrize("is_asked", [False, True], ids=["alone", "asks"])
async def test_a_signal_that_did_not_fit_and_was_caught_stays_an_answer(
    bench: Bench, no_linger: None, is_asked: bool
) -> None:
    """The next try waited for another one, which nobody sends."""
    tries: list[int] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> int:
        tries.append(1)
        try:
            said = await _listens()
        except PayloadRefused:
            said = 0
            if is_asked:
                await Holdfast.step("note", int)
                if len(tries) < 3:
                    raise ConnectionError("for a moment") from None
        if len(tries) < 3:
            raise ConnectionError("for a moment")
        return said

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await bench.app.send_signal(task, "n", "seven")
        assert await task.result(timeout=15) == 0
    assert len(tries) >= 3


async def test_caught_it_stays_an_answer_until_the_next_life(bench: Bench, no_linger: None) -> None:
    """Which could never succeed: each heard the same again."""

    @bench.app.durable(name="root", retry_policy=ONCE)
    async def root() -> int:
        try:
            return await _listens()
        except PayloadRefused:
            pass
        raise ValueError("no pin")

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await bench.app.send_signal(task, "n", "seven")
        with pytest.raises(TaskFailed, match="no pin"):
            await task.result(timeout=30)
        assert await bench.app.retry(task)
        await bench.app.send_signal(task, "n", 7)
        assert await task.result(timeout=30) == 7


async def test_a_group_with_a_signal_that_did_not_fit_lets_it_through(
    bench: Bench, no_linger: None
) -> None:
    tries: list[int] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> int:
        tries.append(1)
        try:
            return await _listens()
        except PayloadRefused as refused:
            raise ExceptionGroup("all of them", [refused, ConnectionError("too")]) from None

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await bench.app.send_signal(task, "n", "seven")
        await bench.app.send_signal(task, "n", 7)
        assert await task.result(timeout=15) == 7


@pytest.mark.timeout(300)
@BOTH_SIDES
@LISTENERS
async def test_a_crash_at_every_call_around_a_signal_that_does_not_fit(
    bench: Bench, no_linger: None, listens: Callable[[], Awaitable[int]], after: bool
) -> None:
    crashing = Crashing(bench)

    def functions(app: Holdfast) -> Any:
        @app.durable(name="root")
        async def root() -> int:
            return await listens()

        return root

    root = crashing.register(functions)

    async def start() -> TaskHandle[Any]:
        task: TaskHandle[Any] = await crashing.rescuer.dispatch(root)
        for said in ("seven", 7):
            await crashing.rescuer.send_signal(task, "n", said)
        return task

    async def in_this_life_or_the_next(task: TaskHandle[Any]) -> Any:
        """A crash behind the last write of an attempt is a try like any other."""
        with suppress(TaskFailed):
            return await task.result(timeout=30)
        assert await bench.app.retry(task)
        return await task.result(timeout=30)

    for fatal in count(1):
        _, found = await crashing.run(fatal, start, after=after, result=in_this_life_or_the_next)
        assert found == 7
        if crashing.doomed and not crashing.doomed.dead:
            break
