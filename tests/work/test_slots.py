"""What is started together, and what is taken ahead."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast import Holdfast, TaskHandle
from holdfast.app.executors import Executors
from holdfast.tasks.task import Claimed, TaskStatus
from holdfast.work import solitude
from holdfast.work.slots import Slots
from tests.work.bench import Bench, Watcher, until

LONG = timedelta(minutes=10)


async def lose_in_company(bench: Bench, tasks: Sequence[TaskHandle[Any]], times: int = 2) -> None:
    """A worker died with all of them, and the next one too: each must run alone from now on."""
    store = await bench.store()
    lanes = list((await store.lanes()).lanes)
    for worker in range(13, 13 + times):
        answer = await store.claim(worker=worker, lanes=lanes, want=len(tasks), lease=LONG)
        assert {task.lease.task for task in answer.tasks} == {task.id for task in tasks}
        for task in tasks:
            bench.lapse(task.id)
        assert len(await store.recover()) == len(tasks)


class Company:
    """Who was inside together with whom."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.met: dict[int, set[int]] = {}

    async def visit(self, i: int) -> None:
        self.inside.add(i)
        for one in self.inside:
            self.met.setdefault(one, set()).update(self.inside - {one})
        await asyncio.sleep(0.2 if i < 3 else 0.02)
        self.inside.remove(i)
        self.met.setdefault(i, set()).update(self.inside)


async def test_what_must_run_alone_runs_as_the_only_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    company = Company()

    @bench.app.durable
    async def work(i: int) -> None:
        if i < 3:  # more work comes, and hints of it, while it runs
            await bench.app.dispatch(work, 200 + i)
        await company.visit(i)

    suspects = await bench.app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, suspects)
    others = await bench.app.dispatch_many([work.call(i) for i in range(100, 140)])
    async with bench.worker(max_concurrency=5):
        for task in [*suspects, *others]:
            await task.result(timeout=60)
    assert [company.met[i] for i in range(3)] == [set(), set(), set()]
    assert any(company.met[i] for i in range(100, 140)), "the others ran side by side"
    assert await bench.ends(suspects[0]) == ["lost", "lost", "done"]


async def test_what_was_lost_together_once_runs_like_all_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    everybody = asyncio.Barrier(6)

    @bench.app.durable
    async def work(i: int) -> None:
        await everybody.wait()

    lost = await bench.app.dispatch_many([work.call(i) for i in range(5)])
    await lose_in_company(bench, lost, times=1)
    other = await bench.app.dispatch(work, 100)
    async with bench.worker(max_concurrency=6):
        for task in [*lost, other]:
            await task.result(timeout=60)
    assert {(await task.state()).try_count for task in lost} == {1}, "that try was given back"


async def test_whoever_has_one_try_in_all_is_not_put_at_risk_by_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    company = Company()

    @bench.app.durable(max_tries=1)
    async def work(i: int) -> None:
        await company.visit(i)

    lost = await bench.app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, lost, times=1)
    async with bench.worker(max_concurrency=5):
        for task in lost:
            await task.result(timeout=60)
    assert company.met == {0: set(), 1: set(), 2: set()}


async def test_a_suspect_that_turned_out_to_need_the_worker_does_not_start_in_company(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it was taken it was to run in a process; before it started another one like it left
    there, for the worker's own."""
    monkeypatch.setattr(solitude, "_WHILE", 600.0)
    taking, take = False, Slots.take

    def watched(slots: Slots, tasks: Sequence[Claimed]) -> None:
        nonlocal taking
        taking = True
        take(slots, tasks)
        taking = False

    monkeypatch.setattr(Slots, "take", watched)
    monkeypatch.setattr(Executors, "isolates", lambda *_: taking)
    company, began, over = Company(), asyncio.Event(), asyncio.Event()

    watcher = Watcher()
    app = bench.new_app(observers=[watcher])

    @app.durable
    async def busy() -> None:
        company.inside.add(100)
        began.set()
        await over.wait()
        company.inside.remove(100)

    @app.durable
    async def work(i: int) -> None:
        await company.visit(i)

    suspects = await app.dispatch_many([work.call(i) for i in range(3)])
    await lose_in_company(bench, suspects)
    await app.pause_queue("default")
    ahead = await app.dispatch(busy.options(queue="other"))
    async with bench.worker(app):
        await began.wait()
        await app.resume_queue("default")
        await until(lambda: len(watcher.of("claimed")) >= 2)
        over.set()
        await ahead.result(timeout=60)
        for task in suspects:
            await task.result(timeout=60)
    assert company.met == {0: set(), 1: set(), 2: set()}


async def test_one_that_hangs_while_it_is_alone_holds_up_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what may run beside others, nor the next one that should be alone."""
    monkeypatch.setattr(solitude, "_WHILE", 0.2)
    release = asyncio.Event()

    @bench.app.durable
    async def work(name: str) -> str:
        if name == "hangs":
            await release.wait()
        return name

    suspects = await bench.app.dispatch_many([work.call("hangs"), work.call("suspect")])
    await lose_in_company(bench, suspects)
    other = await bench.app.dispatch(work, "other")
    async with bench.worker(max_concurrency=5):
        assert await suspects[1].result(timeout=60) == "suspect"
        assert await other.result(timeout=60) == "other"
        release.set()
        assert await suspects[0].result(timeout=60) == "hangs"


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
        most = max(most, sum(one < 100 for one in inside))
        met.update(inside if i < 100 else ())
        await asyncio.sleep(0.1)
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


async def test_one_that_must_run_alone_and_was_cancelled_holds_up_nobody(bench: Bench) -> None:
    @bench.app.durable
    async def work(i: int) -> int:
        return i

    tasks = await bench.app.dispatch_many([work.call(i) for i in range(4)])
    await lose_in_company(bench, tasks)
    store = await bench.store()
    real = store.claim

    unwanted = {tasks[0].id, tasks[2].id}

    async def cancelled_on_the_way(**ask: Any) -> Any:
        answer = await real(**ask)
        told = [
            msgspec.structs.replace(task, cancel_requested=task.lease.task in unwanted)
            for task in answer.tasks
        ]
        return msgspec.structs.replace(answer, tasks=told)

    store.claim = cancelled_on_the_way  # type: ignore[method-assign]
    async with bench.worker(max_concurrency=10):
        for task in tasks:
            await bench.app.wait_for(task, timeout=60)
    states = [(await task.state()).status for task in tasks]
    assert states == [TaskStatus.CANCELLED, TaskStatus.DONE] * 2
    assert bench.leases() == 0


async def test_what_must_run_alone_waits_until_the_end_of_the_others_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it to kill the worker, they would be lost with it."""
    store, go, asked = await bench.store(), asyncio.Event(), asyncio.Event()
    real, ran = store.settle, list[str]()

    @bench.app.durable
    async def work(name: str) -> None:
        ran.append(name)

    suspects = await bench.app.dispatch_many([work.call("one"), work.call("two")])
    await lose_in_company(bench, suspects)

    async def settle(settlements: Any, **more: Any) -> Any:
        asked.set()
        await go.wait()
        return await real(settlements, **more)

    monkeypatch.setattr(store, "settle", settle, raising=False)
    other = await bench.app.dispatch(work.options(priority=9), "other")
    async with bench.worker(max_concurrency=5):
        await asked.wait()
        await until(lambda: bench.leases() >= 2)
        for _ in range(10):
            await asyncio.sleep(0.02)
            assert ran == ["other"]
        go.set()
        for task in [other, *suspects]:
            await task.result(timeout=60)


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
        await (asyncio.sleep(0.3) if i < 2 else hold.wait())

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
