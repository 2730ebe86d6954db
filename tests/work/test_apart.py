"""Suspects in processes of their own: how many, and what waits beside them."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from holdfast.app.executors import Executors
from holdfast.tasks.task import Claimed
from holdfast.work import solitude
from tests.work.bench import Bench, until
from tests.work.losing import lose_in_company


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each suspect had a process of its own: two that are new at once."""
    monkeypatch.setattr(Executors, "isolates", lambda self, function, task: task.alone)
    monkeypatch.setattr(Executors, "choose", lambda self, *_: self._coroutine)
    monkeypatch.setattr(solitude, "_NEW_PROCESSES", 2)


@pytest.mark.usefixtures("apart")
async def test_only_a_few_processes_for_suspects_are_new_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    inside, most, met = set[int](), 0, set[int]()

    @bench.app.durable
    async def work(i: int) -> None:
        nonlocal most
        inside.add(i)
        suspected = sum(one < 100 for one in inside)
        most = max(most, suspected)
        met.update(inside if suspected else ())
        await asyncio.sleep(0.1 if i >= 100 else 0.4)  # long enough for others to come
        inside.remove(i)

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(12)])
    await lose_in_company(bench, suspects)
    others = await bench.app.dispatch_many([work.call(i) for i in range(100, 120)])
    async with bench.worker(max_concurrency=8):
        for task in [*suspects, *others]:
            await task.result(timeout=60)
    assert most == 2
    assert max(met) >= 100, "the others need not wait for them"
    ends = [await bench.ends(task) for task in suspects]
    assert {(one[0], one[-1]) for one in ends} == {("lost", "done")}
    assert sum(one.count("handed_back") for one in ends) <= 12, "they do not come and go"


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("times", [1, 2])
async def test_nothing_is_taken_ahead_beside_what_was_lost(bench: Bench, times: int) -> None:
    """Whatever is in hand when its worker dies again pays for it: so no more than has slots."""
    release, inside = asyncio.Event(), set[int]()

    @bench.app.durable
    async def work(i: int) -> None:
        inside.add(i)
        await release.wait()

    @bench.app.durable(queue="quick")
    async def quick() -> None: ...

    lost = await bench.app.dispatch_many([work.call(i) for i in range(12)])
    await lose_in_company(bench, lost, times=times)
    await bench.app.pause_queue("default")
    async with bench.worker(max_concurrency=4):
        for task in await bench.app.dispatch_many([quick.call() for _ in range(200)]):
            await task.result(timeout=60)  # so quick that many would be taken ahead
        await bench.app.resume_queue("default")
        await until(lambda: len(inside) == (4 if times == 1 else 2))
        await until(lambda: 0 < bench.leases() <= 4 + 2)
        assert len(await bench.history(lost[-1])) <= times + 2, "it comes and goes"
        release.set()
        for task in lost:
            await task.result(timeout=60)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_lost_starts_only_when_no_more_of_it_is_in_hand_than_has_slots(
    bench: Bench, times: int
) -> None:
    """A worker in full swing takes many ahead; what kills it may do so with its first line."""
    held: list[int] = []

    @bench.app.durable
    async def work(i: int) -> None:
        held.append(bench.leases())

    @bench.app.durable(queue="quick")
    async def quick() -> None: ...

    lost = await bench.app.dispatch_many([work.call(i) for i in range(40)])
    await lose_in_company(bench, lost, times=times)
    await bench.app.pause_queue("default")
    async with bench.worker(max_concurrency=4):
        for task in await bench.app.dispatch_many([quick.call() for _ in range(200)]):
            await task.result(timeout=60)
        await bench.app.resume_queue("default")
        for task in lost:
            await task.result(timeout=60)
    assert held[0] <= 4


@pytest.mark.usefixtures("apart")
async def test_beside_suspects_nothing_that_was_lost_is_forgiven(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what kills, and a suspect in a process of its own would pay for it again."""
    apart = set[UUID]()

    def choose(self: Executors, function: Any, task: Claimed) -> Any:
        if task.alone:
            apart.add(task.lease.task)
        return self._coroutine

    monkeypatch.setattr(Executors, "choose", choose)
    everybody = asyncio.Barrier(3)

    @bench.app.durable
    async def work(i: int) -> None:
        await everybody.wait()

    suspect = await bench.app.dispatch_many([work.call(i) for i in range(2)])
    await lose_in_company(bench, suspect)
    await bench.app.pause_queue("default")
    once = await bench.app.dispatch_many([work.options(queue="other").call(i) for i in range(2)])
    await lose_in_company(bench, once, times=1)
    await bench.app.cancel(suspect[1])
    await bench.app.resume_queue("default")
    monkeypatch.setattr(solitude, "_NEW_PROCESSES", 8)
    async with bench.worker(max_concurrency=4):
        for task in [suspect[0], *once]:
            await task.result(timeout=60)
    assert apart == {suspect[0].id, *(task.id for task in once)}


@pytest.mark.usefixtures("apart")
async def test_a_suspect_that_finds_no_slot_is_left_to_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 1.0)
    release, inside = asyncio.Event(), set[int]()

    @bench.app.durable
    async def work(i: int) -> None:
        inside.add(i)
        await release.wait()

    @bench.app.durable(queue="quick")
    async def quick() -> None: ...

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, suspects)
    await bench.app.pause_queue("default")
    await bench.app.dispatch_many([work.call(i) for i in range(100, 103)])
    async with bench.worker(max_concurrency=3):
        for task in await bench.app.dispatch_many([quick.call() for _ in range(200)]):
            await task.result(timeout=60)
        await bench.app.resume_queue("default")
        await until(lambda: len(inside) == 3)
        assert sum(i < 100 for i in inside) == 2, "no process for the third, and then no slot"
        await until(lambda: bench.leases() == 3, within=20)
        release.set()
        for task in suspects:
            await task.result(timeout=60)


@pytest.mark.usefixtures("apart")
async def test_a_suspect_that_waits_for_a_process_can_be_cancelled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    release, inside = asyncio.Event(), set[int]()

    @bench.app.durable
    async def work(i: int) -> None:
        inside.add(i)
        await release.wait()

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, suspects)
    async with bench.worker(max_concurrency=3):
        await until(lambda: len(inside) == 2 and bench.leases() == 3)
        (waits,) = (task for i, task in enumerate(suspects) if i not in inside)
        await waits.cancel()
        await until(lambda: bench.leases() == 2, within=20)
        assert (await waits.state()).status == "cancelled"
        release.set()
    assert len(inside) == 2


@pytest.mark.usefixtures("apart")
async def test_processes_of_suspects_that_run_for_long_count_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 0.2)
    inside, release = set[int](), asyncio.Event()

    @bench.app.durable
    async def work(i: int) -> None:
        inside.add(i)
        await release.wait()

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(5)])
    await lose_in_company(bench, suspects)
    async with bench.worker(max_concurrency=5):
        await until(lambda: len(inside) == 5)
        release.set()
        for task in suspects:
            await task.result(timeout=60)


@pytest.mark.usefixtures("apart")
async def test_a_drain_hands_back_suspects_that_wait_for_a_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    release, began = asyncio.Event(), asyncio.Event()

    @bench.app.durable
    async def work(i: int) -> None:
        began.set()
        await release.wait()

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(6)])
    await lose_in_company(bench, suspects)
    async with bench.worker(max_concurrency=6, drain_timeout=0.1):
        await began.wait()
        await until(lambda: bench.leases() == 6)
    assert bench.leases() == 0
    release.set()
    async with bench.worker(max_concurrency=6):
        for task in suspects:
            await task.result(timeout=60)
    assert {(await task.state()).try_count for task in suspects} == {2}
