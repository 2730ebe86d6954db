"""Random shapes of functions under random crashes: the result is that of direct execution."""

import asyncio
import json
import random
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, RetryPolicy, current
from holdfast.flow import arrivals
from tests.flow.doomed import Doomed
from tests.flow.shapes import Direct, Durable, grow, walk
from tests.storm.ledger import peek
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=50, initial_delay=0.0, jitter=0.0)


class World:
    """The functions, and what they did outside."""

    def __init__(self) -> None:
        self.ran: Counter[tuple[UUID, str]] = Counter()
        self.doomed: Doomed | None = None

    def register(self, app: Holdfast) -> Any:
        async def effect(name: int) -> int:
            if self.doomed and self.doomed.dead and current().worker_id == "victim":
                raise RuntimeError("it is dead")
            self.ran[current().task_id, f"step s{name}"] += 1
            return name + 1

        @app.durable(name="child", retry_policy=PATIENT)
        async def child(name: int) -> int:
            return name * 2

        @app.durable(name="bad", retry_policy=RetryPolicy(max_attempts=20, retry_for=(OSError,)))
        async def bad(name: int) -> None:
            raise ValueError(f"{name} failed")

        @app.durable(name="flow", retry_policy=PATIENT)
        async def flow(shape: Any) -> Any:
            return await walk(durable, shape)

        durable = Durable(effect, child, flow, bad)
        return flow


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 300), marks=pytest.mark.long)], ids=["few", "many"]
)
async def test_random_functions_give_what_they_give_without_us(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    world = World()
    victim, rescuer = bench.app, bench.new_app()
    flow = world.register(victim)
    world.register(rescuer)
    client = await victim.home.client()
    store = client.store
    crashes = 0
    for seed in seeds:
        chance = random.Random(seed)
        shape = grow(chance)
        want = json.loads(json.dumps(await walk(Direct(), shape)))
        monkeypatch.setattr(arrivals, "_LINGER", chance.choice([0.0, 1.0]))
        doomed = world.doomed = Doomed(store, chance.randint(1, 30), after=chance.random() < 0.5)
        task = await rescuer.dispatch(flow, shape)
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
        assert found == want, f"seed {seed}: {shape}"
        crashes += doomed.dead
        twice = [key for key, count in world.ran.items() if count > 1]
        assert not [key for key in twice if key in doomed.recorded], f"seed {seed}"
        world.ran.clear()
    assert crashes > 5
