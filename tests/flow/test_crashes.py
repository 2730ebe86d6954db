"""A crash at every boundary between two statements: recorded steps never run again, the result is
right, nothing is stuck."""

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, RetryPolicy, current
from holdfast.flow import arrivals
from holdfast.work import solitude
from tests.flow.doomed import Doomed
from tests.storm.ledger import peek
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=20, initial_delay=0.0, jitter=0.0)
STEPS = ("step a", "step s1", "step s2", "step z")


class Ledger:
    """What happened outside, whoever did it."""

    def __init__(self) -> None:
        self.steps: Counter[tuple[UUID, str]] = Counter()
        self.children: Counter[tuple[int, int]] = Counter()
        self.doomed: Doomed | None = None

    def check_alive(self) -> None:
        """A process that was killed has no effects."""
        if self.doomed and self.doomed.dead and current().worker_id == "victim":
            raise RuntimeError("it is dead")


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
    ledger = Ledger()
    victim, rescuer = bench.app, bench.new_app()
    flow = _register(victim, ledger)
    _register(rescuer, ledger)
    client = await victim.home.client()
    store = client.store
    runs = 0
    while runs < 200:
        runs += 1
        monkeypatch.setattr(arrivals, "_LINGER", 0.0 if runs % 2 else 1.0)
        doomed = ledger.doomed = Doomed(store, runs, after=after)
        task = await rescuer.dispatch(flow, runs)
        await rescuer.send_signal(task, "go", "on")
        client.store = doomed
        working, lifecycle = await bench.start(victim, worker_id="victim", drain_timeout=0.0)
        died = asyncio.create_task(doomed.died.wait())
        ended = asyncio.create_task(rescuer.wait_for(task))
        await asyncio.wait({died, ended}, return_when=asyncio.FIRST_COMPLETED)
        lifecycle.request_drain()
        await working
        client.store = store
        for (id,) in peek(bench.place, "select id from {s}lease"):
            bench.lapse(UUID(bytes=id) if isinstance(id, bytes) else UUID(str(id)))
        async with bench.worker(rescuer, worker_id="rescuer"):
            found = await task.result(timeout=60)
        died.cancel()
        await asyncio.wait({ended, died})
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
