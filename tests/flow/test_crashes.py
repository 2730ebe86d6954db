"""A crash at every boundary between two statements: recorded steps never run again, the result is
right, nothing is stuck."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, RetryPolicy, TaskHandle, current
from holdfast.flow import arrivals
from holdfast.work import solitude
from tests.flow.crashing import Crashing
from tests.storm.ledger import peek
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=20, initial_delay=0.0, jitter=0.0)
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
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_every_call(
    bench: Bench, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        solitude, "_WHILE", 0.05
    )  # `never` is lost in company, and its parent ends it
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
    assert bench.leases() == 0
