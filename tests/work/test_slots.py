"""What is started together, and what is taken ahead."""

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreError, StoreUnreachable
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import Claimed, TaskStatus
from holdfast.work import claiming
from holdfast.work.claiming import Claiming, Found
from tests.work.bench import Bench, Watcher, until


async def make_it_think_that_tasks_are_quick(app: Holdfast, quick: Any) -> None:
    for task in await app.dispatch_many([quick.call() for _ in range(40)]):
        await task.result(timeout=60)


async def test_quick_tasks_are_taken_ahead_and_handed_back_when_they_do_not_start(
    bench: Bench,
) -> None:
    hold, watcher = asyncio.Event(), Watcher()
    app = bench.new_app(observers=[watcher])
    inside: list[int] = []

    @app.durable
    async def quick() -> None:
        return None

    @app.durable
    async def slow(i: int) -> int:
        inside.append(i)
        await hold.wait()
        return i

    async with bench.worker(app, max_concurrency=2):
        await make_it_think_that_tasks_are_quick(app, quick)
        tasks = await app.dispatch_many([slow.call(i) for i in range(30)])
        await until(lambda: len({task for _, ids in watcher.of("claimed") for task in ids}) > 42)
        await until(lambda: bench.leases() == 2)
        back = [task for task in tasks if (await task.state()).status is TaskStatus.PENDING]
        assert len(back) == 28
        assert {(await task.state()).try_count for task in back} == {0}
        # They are not taken and given back for ever.
        store = await bench.store()
        settled = [sum([len(await store.attempts(task.id)) for task in tasks])]
        await until(lambda: len(inside) == 2)
        for _ in range(3):
            await asyncio.sleep(0.6)
            settled.append(sum([len(await store.attempts(task.id)) for task in tasks]))
        assert settled[-1] == settled[-2]
        hold.set()
        for task in tasks:
            await task.result(timeout=60)
    assert inside == sorted(inside), "they keep their places"


async def test_more_is_asked_for_while_what_was_claimed_before_still_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker computes and the store looks for more, at the same time."""
    started: list[int] = []
    claimed: list[Claimed] = []
    left: list[int] = []  # of what was claimed before, when more was asked for
    claim = Claiming.claim

    async def watched(claiming: Claiming, now: int, ahead: int) -> Found:
        left.append(len(claimed) - len(started))
        found = await claim(claiming, now, ahead)
        claimed.extend(found.tasks)
        return found

    monkeypatch.setattr(Claiming, "claim", watched)

    @bench.app.durable
    async def compute(i: int) -> None:
        started.append(i)
        time.sleep(0.0001)  # noqa: ASYNC251

    async with bench.worker(max_concurrency=10):
        tasks = await bench.app.dispatch_many([compute.call(i) for i in range(6_000)])
        await tasks[-1].result(timeout=60)
    assert max(left) > 0, "it does not wait until all have started"


async def test_functions_that_only_compute_are_not_hoarded(bench: Bench) -> None:
    """They run one by one, however many slots there are: others may be free for the rest."""
    watcher = Watcher()
    app = bench.new_app(observers=[watcher])

    @app.durable
    async def compute(i: int) -> None:
        time.sleep(0.001)  # noqa: ASYNC251

    async with bench.worker(app, max_concurrency=100):
        tasks = await app.dispatch_many([compute.call(i) for i in range(3000)])
        await tasks[-1].result(timeout=60)
    ends = [one.settlement.verdict for _, batch, _ in watcher.of("settled") for one in batch]
    assert ends.count(Verdict.HANDED_BACK) < 300, "what was taken ahead started soon"


async def test_all_slots_share_one_turn_of_the_event_loop(bench: Bench) -> None:
    """Else what the store has answered would lie there until each of them had its own."""
    ran: list[int] = []
    turns = [0]  # how many had run, at each turn of the event loop

    @bench.app.durable
    async def compute(i: int) -> None:
        ran.append(i)
        if i == 50:
            await asyncio.sleep(0)  # lets a second slot go on beside the first
        time.sleep(0.0003)  # noqa: ASYNC251

    async def watch() -> None:
        while len(ran) < 600:
            await asyncio.sleep(0)
            turns.append(len(ran))

    async with bench.worker(max_concurrency=20):
        watching = asyncio.create_task(watch())
        await bench.app.dispatch_many([compute.call(i) for i in range(600)])
        async with asyncio.timeout(60):
            await watching
    # Of 3 ms each at most: a machine that is slow gets less done in one.
    assert max(after - before for before, after in pairwise(turns)) <= 12


async def test_slots_that_come_free_together_are_taken_together(bench: Bench) -> None:
    """And not two at each turn of the event loop, which is long where functions compute."""
    hold = asyncio.Event()
    started: list[int] = []
    turns: list[int] = []

    @bench.app.durable
    async def quick() -> None:
        return None

    @bench.app.durable
    async def wait(i: int) -> None:
        started.append(i)
        await hold.wait()
        time.sleep(0.002)  # noqa: ASYNC251

    async with bench.worker(max_concurrency=40):
        await make_it_think_that_tasks_are_quick(bench.app, quick)
        await bench.app.dispatch_many([wait.call(i) for i in range(80)])
        await until(lambda: len(started) == 40)
        await until(lambda: bench.leases() == 80)
        hold.set()
        while len(started) < 80:
            await asyncio.sleep(0)
            turns.append(len(started))
    assert len([n for n in turns if 40 < n < 80]) < 10


@pytest.mark.parametrize("error", [StoreError, StoreUnreachable])
async def test_large_tasks_are_claimed_a_few_at_a_time(
    bench: Bench, error: type[StoreError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first claim cannot know, and is more than the store can answer at once, or in time."""
    store = await bench.store()
    real, asked = store.claim, list[int]()

    async def claim(*, want: int, **more: Any) -> Any:
        asked.append(want)
        if want > 30:
            raise error("array size exceeds the maximum allowed")
        return await real(want=want, **more)

    @bench.app.durable
    async def weigh(text: str) -> int:
        return len(text)

    monkeypatch.setattr(claiming, "_MOST_BYTES", 50_000)
    tasks = await bench.app.dispatch_many([weigh.call("x" * 10_000) for _ in range(40)])
    monkeypatch.setattr(store, "claim", claim, raising=False)
    async with bench.worker(max_concurrency=100):
        assert [await task.result(timeout=60) for task in tasks] == [10_000] * 40
    assert asked[:3] == [64, 32, 16], "half of what was refused"
    assert max(asked[3:]) <= 16
    assert asked[3] == 4, "as many as weigh so much"


async def test_nothing_is_taken_ahead_from_a_limited_lane(bench: Bench) -> None:
    hold = asyncio.Event()
    inside: list[int] = []

    @bench.app.durable
    async def quick() -> None:
        return None

    @bench.app.durable(max_concurrent=50)
    async def limited(i: int) -> None:
        inside.append(i)
        await hold.wait()

    async with bench.worker(max_concurrency=4):
        await make_it_think_that_tasks_are_quick(bench.app, quick)
        tasks = await bench.app.dispatch_many([limited.call(i) for i in range(30)])
        most = 0
        while len(inside) < 4:
            most = max(most, bench.leases())
            await asyncio.sleep(0.001)
        for _ in range(20):
            most = max(most, bench.leases())
            await asyncio.sleep(0.01)
        assert most == 4
        hold.set()
        for task in tasks:
            await task.result(timeout=60)


async def test_nothing_is_taken_ahead_of_slow_tasks(bench: Bench) -> None:
    inside: list[int] = []
    hold = asyncio.Event()

    @bench.app.durable
    async def slow(i: int) -> None:
        inside.append(i)
        await (asyncio.sleep(0.6) if i < 2 else hold.wait())  # longer than one looks ahead

    async with bench.worker(max_concurrency=2):
        tasks = await bench.app.dispatch_many([slow.call(i) for i in range(12)])
        most = 0
        while len(inside) < 4:
            most = max(most, bench.leases())
            await asyncio.sleep(0.005)
        for _ in range(20):
            most = max(most, bench.leases())
            await asyncio.sleep(0.01)
        assert most <= 4  # two that run, and two that have ended and are not settled yet
        hold.set()
        for task in tasks:
            await task.result(timeout=60)


@pytest.mark.parametrize("wanted", [1, 20_000])
async def test_any_number_of_slots_is_fine(bench: Bench, wanted: int) -> None:
    @bench.app.durable
    async def work() -> int:
        return 1

    async with bench.worker(max_concurrency=wanted):
        assert await (await bench.app.dispatch(work)).result(timeout=60) == 1
