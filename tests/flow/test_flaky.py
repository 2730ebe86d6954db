"""Random shapes of flaky steps and children, under retries, new lives and crashes: what failed and
was not acted on runs again, what succeeded never does."""

import random
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed, TaskHandle
from holdfast.flow import arrivals
from tests.flow.acts import number_of
from tests.flow.crashing import Crashing
from tests.flow.flaky import ALWAYS, Ledger, Shape, grow, items, register, wanted
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=100, initial_delay=0.0, jitter=0.0)
MANY = pytest.param(range(25, 125), marks=pytest.mark.long)


async def _result(app: Holdfast, task: TaskHandle[Any], lives: int) -> Any:
    """As somebody comes to it who mends nothing, and tries again."""
    for _ in range(lives):
        try:
            return await task.result(timeout=30)
        except TaskFailed:
            assert await app.retry(task)
    return await task.result(timeout=30)


def _check(ledger: Ledger, shape: Shape, seed: int) -> None:
    for kind, name, fails, _ in items(shape):
        if fails == ALWAYS:
            continue
        told = f"seed {seed}, {name}: {shape}"
        assert ledger.successes[name] == 1, told
        assert ledger.failures[name] == fails, told
        assert ledger.calls[name] == fails + 1 + ledger.cancels[name], told
        assert kind == "step" or len(ledger.tasks[name]) == 1, told


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", [range(25), MANY], ids=["few", "many"])
async def test_each_flaky_item_is_called_once_more_than_it_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    ledger = Ledger()
    root = register(bench.app, ledger, PATIENT)
    children = 0
    async with bench.worker(max_concurrency=30):
        for seed in seeds:
            chance = random.Random(seed)
            shape = _named(grow(chance), seed)
            monkeypatch.setattr(arrivals, "_LINGER", chance.choice([0.0, 1.0]))
            task = await bench.app.dispatch(root, shape)
            lives = 1 + sum(item[2] for item in items(shape) if item[0] == "child")
            assert await _result(bench.app, task, lives) == wanted(shape), f"seed {seed}: {shape}"
            _check(ledger, shape, seed)
            children += sum(item[0] == "child" for item in items(shape))
    assert number_of(bench, "child") == children


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", [range(25), MANY], ids=["few", "many"])
async def test_a_crash_makes_nothing_that_is_recorded_run_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    crashing = Crashing(bench)
    ledger = Ledger()
    ledger.check_alive = crashing.check_alive
    root = crashing.register(lambda app: register(app, ledger, PATIENT))
    crashes = 0
    for seed in seeds:
        chance = random.Random(seed)
        shape = _named(grow(chance), seed)
        monkeypatch.setattr(arrivals, "_LINGER", chance.choice([0.0, 1.0]))

        async def start(shape: Shape = shape) -> TaskHandle[Any]:
            return await crashing.rescuer.dispatch(root, shape)

        fatal, after = chance.randint(1, 30), chance.random() < 0.5

        async def lives(task: TaskHandle[Any], shape: Shape = shape) -> Any:
            many = 5 + sum(item[2] for item in items(shape) if item[0] == "child")
            return await _result(crashing.rescuer, task, many)

        _, found = await crashing.run(fatal, start, after=after, result=lives)
        assert found == wanted(shape), f"seed {seed}: {shape}"
        doomed = crashing.doomed
        assert doomed
        crashes += doomed.dead
        recorded = {name for _, name in doomed.recorded}
        for kind, name, fails, _ in items(shape):
            if fails != ALWAYS:
                most = 2 if doomed.dead and f"step {name}" not in recorded else 1
                assert 1 <= ledger.successes[name] <= most, f"seed {seed}, {name}: {shape}"
            assert kind == "step" or len(ledger.tasks[name]) == 1, f"seed {seed}, {name}: {shape}"
    assert crashes > 5


def _named(shape: Shape, seed: int) -> Shape:
    """Each item has a name of its own, in all shapes."""
    if shape[0] in ("step", "child"):
        return (shape[0], f"{shape[1]}.{seed}", *shape[2:])
    return (shape[0], *(_named(part, seed) for part in shape[1:]))
