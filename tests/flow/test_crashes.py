"""A crash at every boundary between two statements: recorded steps never run again, the result is
right, nothing is stuck."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed, TaskHandle, current
from holdfast.flow import arrivals
from holdfast.upkeep import chores
from holdfast.work import solitude
from tests.flow.acts import open_children
from tests.flow.crashing import BOTH_SIDES, Crashing
from tests.storm.ledger import peek
from tests.work.bench import Bench, until

PATIENT = RetryPolicy(max_attempts=20, initial_delay=0.0, jitter=0.0)
FINAL = RetryPolicy(max_attempts=20, retry_for=(OSError,))
STEPS = ("step a", "step s1", "step s2", "step z")


class Ledger:
    """What happened outside, whoever did it."""

    def __init__(self, check_alive: Callable[[], None]) -> None:
        self.steps: Counter[tuple[UUID, str]] = Counter()
        self.children: Counter[tuple[int, int]] = Counter()
        self.check_alive = check_alive


def _register(app: Holdfast, ledger: Ledger) -> Any:
    async def effect(name: str) -> str:
        ledger.check_alive()
        ledger.steps[current().task_id, f"step {name}"] += 1
        return name

    @app.durable(name="child", retry_policy=PATIENT)
    async def child(run: int, i: int) -> int:
        ledger.check_alive()
        ledger.children[run, i] += 1
        return i

    @app.durable(name="never", retry_policy=PATIENT)
    async def never(run: int) -> None:
        await asyncio.Event().wait()

    @app.durable(name="flow", retry_policy=PATIENT)
    async def flow(run: int) -> list[Any]:
        found: list[Any] = [await Holdfast.step("a", effect, "a")]
        before = current().uuid()
        found += await asyncio.gather(child(run, 1), child(run, 2))
        found += await Holdfast.gather(child(run, 3), child(run, 4))
        found += await asyncio.gather(*(Holdfast.step(s, effect, s) for s in ("s1", "s2")))
        await Holdfast.sleep(0.02)
        found.append(await Holdfast.wait_for_signal("go"))
        try:
            await asyncio.wait_for(never(run), 0.02)
        except TimeoutError:
            found.append("timeout")
        found.append(await Holdfast.step("same", str, before) == str(before))
        return [*found, await Holdfast.step("z", effect, "z")]

    return flow


@pytest.mark.timeout(300)
@BOTH_SIDES
async def test_a_crash_at_every_call(
    bench: Bench, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `never` is lost in company, and its parent ends it; or the net, where its parent had ended.
    monkeypatch.setattr(solitude, "_WHILE", 0.05)
    monkeypatch.setattr(chores, "_NET", 1.0)
    monkeypatch.setattr(chores, "_QUIET", timedelta(0))
    crashing = Crashing(bench)
    ledger = Ledger(crashing.check_alive)
    flow = crashing.register(lambda app: _register(app, ledger))
    runs = 0

    async def start() -> TaskHandle[Any]:
        task: TaskHandle[Any] = await crashing.rescuer.dispatch(flow, runs)
        await crashing.rescuer.send_signal(task, "go", "on")
        return task

    while runs < 200:
        runs += 1
        monkeypatch.setattr(arrivals, "_LINGER", 0.0 if runs % 2 else 1.0)
        task, found = await crashing.run(runs, start, after=after)
        doomed = crashing.doomed
        assert doomed
        assert found == ["a", 1, 2, 3, 4, "s1", "s2", "on", "timeout", True, "z"]
        for name in STEPS:
            ran = ledger.steps[task.id, name]
            assert ran == 1 or (ran == 2 and (task.id, name) not in doomed.recorded), name
        assert all(1 <= ledger.children[runs, i] <= 2 for i in (1, 2, 3, 4))
        if not doomed.dead:
            break
    below = "select count(*) from {s}task where parent is not null"
    assert int(peek(bench.place, below)[0][0]) == 5 * runs
    assert runs > 8
    async with bench.worker(crashing.rescuer):  # `never` may have been held by one who died last
        await until(lambda: not open_children(bench))
    assert bench.leases() == 0


@pytest.mark.timeout(300)
@BOTH_SIDES
async def test_a_crash_at_every_call_of_a_function_that_begins_anew(
    bench: Bench, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has its own steps, signals and dispatches, and ends whole before the next begins: it
    pays no try, and what it dispatches is not taken for what the run before did."""
    monkeypatch.setattr(solitude, "_WHILE", 0.05)
    crashing = Crashing(bench)
    steps: Counter[tuple[int, int]] = Counter()

    def register(app: Holdfast) -> Any:
        @app.durable(name="note", queue="notes")
        async def note() -> None: ...

        async def effect(run: int, n: int) -> None:
            crashing.check_alive()
            steps[run, n] += 1

        @app.durable(name="rounds", retry_policy=PATIENT)
        async def rounds(run: int, n: int, heard: list[str]) -> list[str]:
            await Holdfast.step("effect", effect, run, n)
            await app.dispatch(note)
            heard = [*heard, await Holdfast.wait_for_signal("go")]
            if n == 2:
                return heard
            await Holdfast.continue_as_new(run, n + 1, heard)
            raise AssertionError("unreachable")

        return rounds

    rounds, runs = crashing.register(register), 0

    async def start() -> TaskHandle[Any]:
        task: TaskHandle[Any] = await crashing.rescuer.dispatch(rounds, runs, 0, [])
        for word in "abc":
            await crashing.rescuer.send_signal(task, "go", word)
        return task

    while runs < 100:
        runs += 1
        _, found = await crashing.run(runs, start, after=after)
        assert found == ["a", "b", "c"]
        assert crashing.doomed
        ran = [steps[runs, n] for n in range(3)]
        assert sum(ran) == 3 or (sum(ran) == 4 and crashing.doomed.dead), ran
        assert _notes(bench) == 3 * runs
        if not crashing.doomed.dead:
            break
    assert runs > 8
    assert bench.leases() == 0


async def test_a_run_that_dies_as_it_begins_anew_pays_no_try(bench: Bench) -> None:
    """Its only try is the next run's: either the run before goes on, or the next has begun."""
    crashing = Crashing(bench)

    def register(app: Holdfast) -> Any:
        @app.durable(name="twice", max_tries=1)
        async def twice(n: int) -> int:
            if n == 0:
                await Holdfast.continue_as_new(1)
            return n

        return twice

    twice = crashing.register(register)
    task, found = await crashing.run(1, lambda: crashing.rescuer.dispatch(twice, 0), after=True)
    assert found == 1
    assert crashing.doomed
    assert crashing.doomed.dead
    store = await bench.store()
    assert [(a.fence, a.ended) for a in await store.attempts(task.id)] == [
        (1, "snoozed"),
        (2, "done"),
    ]


@pytest.mark.timeout(300)
@BOTH_SIDES
async def test_a_crash_at_every_call_leaves_no_child_of_a_broken_join(
    bench: Bench, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fails once the third, which would never end, has begun."""
    monkeypatch.setattr(solitude, "_WHILE", 0.05)
    monkeypatch.setattr(arrivals, "_LINGER", 0.0)
    monkeypatch.setattr(chores, "_NET", 0.1)
    monkeypatch.setattr(chores, "_QUIET", timedelta(0))
    crashing = Crashing(bench)
    begun: dict[int, asyncio.Event] = {}

    def register(app: Holdfast) -> Any:
        @app.durable(name="part", retry_policy=FINAL)
        async def part(run: int, i: int) -> None:
            if i == 1:
                await begun[run].wait()
                raise ValueError("broken")
            if i == 2:
                begun[run].set()
                await asyncio.Event().wait()

        @app.durable(name="whole", retry_policy=PATIENT)
        async def whole(run: int) -> str:
            try:
                await part.starmap([(run, i) for i in range(4)], at_most=2)
            except TaskFailed as failed:
                for n in range(40):  # nobody but this function cancels them: it is not over yet
                    if not await Holdfast.step(f"look {n}", open_children, bench):
                        return failed.type
                    await Holdfast.sleep(0.3)
            return "some are left"

        return whole

    whole, runs = crashing.register(register), 0

    async def start() -> TaskHandle[Any]:
        begun[runs] = asyncio.Event()
        task: TaskHandle[Any] = await crashing.rescuer.dispatch(whole, runs)
        return task

    while runs < 20:
        runs += 1
        # After one call is before the next: each takes every other one.
        _, found = await crashing.run(2 * runs - after, start, after=after)
        assert found == "ValueError"
        async with bench.worker(crashing.rescuer):
            await until(lambda: not open_children(bench))
        if crashing.doomed and not crashing.doomed.dead:
            break
    assert runs > 4


def _notes(bench: Bench) -> int:
    sql = "select count(*) from {s}task t join {s}lane l on l.id = t.lane where l.type = 'note'"
    return int(peek(bench.place, sql)[0][0])
