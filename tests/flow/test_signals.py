"""Signals: queued, consumed once each and in order; before, during and after the wait."""

import asyncio

import pytest

from holdfast import Holdfast
from tests.flow.acts import SOON, waits
from tests.flow.slowly import slow_commits
from tests.storm.ledger import peek
from tests.work.bench import Bench, until


async def test_signals_that_come_before_anybody_waits_are_kept_in_order(bench: Bench) -> None:
    @bench.app.durable(name="listen")
    async def listen() -> list[int]:
        return [await Holdfast.wait_for_signal("go", type=int) for _ in range(3)]

    task = await bench.app.dispatch(listen)
    for i in range(3):
        assert await bench.app.send_signal(task, "go", i)
    async with bench.worker():
        assert await task.result(timeout=60) == [0, 1, 2]
    assert not await bench.app.send_signal(task, "go", 3)


async def test_a_signal_reaches_a_function_that_waits_in_memory(bench: Bench) -> None:
    reached = asyncio.Event()

    @bench.app.durable(name="listen")
    async def listen() -> str:
        reached.set()
        return str(await Holdfast.wait_for_signal("go"))

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await reached.wait()
        await bench.app.send_signal(task, "go", "on")
        assert await task.result(timeout=60) == "on"


async def test_a_signal_wakes_a_function_that_was_put_down(bench: Bench, no_linger: None) -> None:
    @bench.app.durable(name="listen")
    async def listen() -> str:
        first = await Holdfast.wait_for_signal("go")
        return f"{first} {await Holdfast.wait_for_signal('go')}"

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        for word in ("now", "then"):
            await waits(bench, task)
            await bench.app.send_signal(task, "go", word)
        assert await task.result(timeout=60) == "now then"


async def test_signals_of_another_name_wait_for_their_turn(
    bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @bench.app.durable(name="listen")
    async def listen() -> list[int]:
        return [await Holdfast.wait_for_signal(name, type=int) for name in "abab"]

    looks = 0
    async with bench.worker():
        task = await bench.app.dispatch(listen)
        looks = 0
        for i, name in enumerate("bbaa"):
            await waits(bench, task)
            if i == 1:
                looks = await _looks_within(bench, task, monkeypatch)
            await bench.app.send_signal(task, name, i)
            await asyncio.sleep(0)
        assert await task.result(timeout=60) == [2, 0, 3, 1]
    assert looks < 10


async def _looks_within(
    bench: Bench, task: object, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.3
) -> int:
    """How often anyone looks for news meanwhile."""
    store = await bench.store()
    looks = []
    news = store.news

    async def counted(*args, **kwargs):
        looks.append(1)
        return await news(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(store, "news", counted)
        await asyncio.sleep(seconds)
    return len(looks)


async def test_a_thousand_signals_are_consumed_once_each_and_in_order(bench: Bench) -> None:
    @bench.app.durable(name="listen")
    async def listen(count: int) -> list[int]:
        return [await Holdfast.wait_for_signal("n", type=int) for _ in range(count)]

    task = await bench.app.dispatch(listen, 1000)
    for i in range(300):
        await bench.app.send_signal(task, "n", i)
    async with bench.worker():
        for start in range(300, 1000, 50):
            sent = (bench.app.send_signal(task, "n", i) for i in range(start, start + 50))
            for one in sent:
                await one
        assert await task.result(timeout=100) == list(range(1000))
    left = peek(bench.place, "select count(*) from {s}signal where not consumed")
    assert int(left[0][0]) <= 1  # what ended the function needs no commit of its own


@pytest.mark.parametrize("lingers", [True, False])
async def test_a_signal_that_does_not_come_in_time_is_a_timeout(
    bench: Bench, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lingers:
        monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)

    @bench.app.durable(name="listen")
    async def listen() -> list[str]:
        told = []
        try:
            await Holdfast.wait_for_signal("go", timeout=0.3)
        except TimeoutError as error:
            told.append(str(error))
        told.append(await Holdfast.wait_for_signal("go", timeout="1h"))
        return told

    async with bench.worker():
        task = await bench.app.dispatch(listen)

        async def timed_out() -> bool:
            return (
                '"due"' in str(await _values(bench, task.id))
                or len(await _values(bench, task.id)) > 1
            )

        await until(timed_out)
        await bench.app.send_signal(task, "go", "late")
        assert await task.result(timeout=60) == ["no signal 'go' within 0.3 s", "late"]


async def _values(bench: Bench, task):
    return [step.value for step in (await (await bench.store()).journal(task)).steps]


async def test_a_signal_is_not_taken_by_a_wait_that_was_given_up(
    bench: Bench, no_linger: None
) -> None:
    """A timeout and a signal that came while nobody was there: one wins, and nothing is lost."""

    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> list[str]:
        told: list[str] = []
        try:
            async with asyncio.timeout(0.2):
                told.append(await Holdfast.wait_for_signal("go"))
        except TimeoutError:
            told.append("timeout")
            told.append(await Holdfast.wait_for_signal("go"))
        return told

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await waits(bench, task)
    await asyncio.sleep(0.25)
    await bench.app.send_signal(task, "go", "it")
    async with bench.worker():
        assert await task.result(timeout=60) in (["it"], ["timeout", "it"])


async def test_two_branches_may_wait_for_the_same_name(bench: Bench) -> None:
    @bench.app.durable(name="listen")
    async def listen() -> list[int]:
        async def one() -> int:
            return int(await Holdfast.wait_for_signal("go"))

        return await asyncio.gather(*(one() for _ in range(5)))

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        for i in range(5):
            await bench.app.send_signal(task, "go", i)
        assert await task.result(timeout=60) == [0, 1, 2, 3, 4]


async def test_a_thousand_signals_reach_one_function_in_order(bench: Bench) -> None:
    """Half of them before it begins, half while it takes them in, from two senders at once."""
    begun = asyncio.Event()

    @bench.app.durable(name="listen")
    async def listen() -> list[str]:
        begun.set()
        return [await Holdfast.wait_for_signal("go", type=str) for _ in range(1000)]

    task = await bench.app.dispatch(listen)

    async def send(who: str, numbers: range) -> None:
        for i in numbers:
            assert await bench.app.send_signal(task, "go", f"{who} {i}")

    await asyncio.gather(send("a", range(250)), send("b", range(250)))
    async with bench.worker():
        await begun.wait()
        await asyncio.gather(send("a", range(250, 500)), send("b", range(250, 500)))
        found = await task.result(timeout=60)
    for who in "ab":
        assert [one for one in found if one.startswith(who)] == [f"{who} {i}" for i in range(500)]
    (left,) = peek(bench.place, "select count(*) from {s}signal where not consumed")
    assert int(left[0]) <= 1  # the last one came with the end


async def test_a_wait_that_is_given_up_just_as_its_signal_comes_leaves_it_to_the_next(
    bench: Bench,
) -> None:
    """It was recorded for the first wait, which did not hear of it any more."""
    await slow_commits(bench, of="came", by=0.6)
    attempts: list[int] = []
    gone: list[str] = []

    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> list[str]:
        attempts.append(1)
        first = asyncio.create_task(Holdfast.wait_for_signal("go", type=str))
        await asyncio.sleep(0.5)
        first.cancel()
        await asyncio.wait({first})
        gone.append("given up" if first.cancelled() else "heard")
        heard = [await Holdfast.wait_for_signal("go", type=str)]
        await Holdfast.step("heard", str, heard[0])
        if len(attempts) == 1:
            raise ValueError("once more")
        return [*heard, await Holdfast.wait_for_signal("go", type=str)]

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await until(lambda: attempts)
        await bench.app.send_signal(task, "go", "one")
        await bench.app.send_signal(task, "go", "two")
        assert await task.result(timeout=30) == ["one", "two"]
    assert gone == ["given up"] * 2


async def test_what_a_run_has_heard_of_is_not_for_the_next_one(bench: Bench) -> None:
    @bench.app.durable(name="listen")
    async def listen(heard: list[str] | None = None) -> list[str]:
        heard = [*(heard or []), await Holdfast.wait_for_signal("go", type=str)]
        if len(heard) < 3:
            await Holdfast.continue_as_new(heard)
        return heard

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        for word in ("one", "two", "three"):
            await bench.app.send_signal(task, "go", word)
        assert await task.result(timeout=30) == ["one", "two", "three"]


async def test_a_signal_that_was_given_back_is_heard_once_after_a_failure_too(
    bench: Bench,
) -> None:
    """The failure is older than both waits, so what came for either may be asked for again."""
    await slow_commits(bench, of="came", by=0.6)
    attempts: list[int] = []

    @bench.app.durable(name="listen", retry_policy=SOON)
    async def listen() -> list[str]:
        attempts.append(1)
        heard: list[str] = []

        async def fail() -> None:
            if len(attempts) == 1:
                raise ValueError("once")

        async def failing() -> None:
            await Holdfast.step("fails", fail)

        async def listening() -> None:
            heard.append(await Holdfast.wait_for_signal("go", type=str))

        failed = asyncio.create_task(failing())
        await asyncio.wait({failed})
        first = asyncio.create_task(listening())
        await asyncio.sleep(0.4)
        if len(attempts) == 1:
            first.cancel()
        second = asyncio.create_task(listening())
        await asyncio.wait({first, second})
        await failed
        return heard

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await bench.app.send_signal(task, "go", "one")
        await until(lambda: len(attempts) == 2)
        await bench.app.send_signal(task, "go", "two")
        assert sorted(await task.result(timeout=30)) == ["one", "two"]
