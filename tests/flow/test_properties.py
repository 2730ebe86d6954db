"""Random shapes of functions under random crashes: the result is that of direct execution."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, RetryPolicy, TaskHandle, current
from holdfast.flow import arrivals
from tests.flow.crashing import Crashing
from tests.flow.shapes import Direct, Durable, grow, walk
from tests.storm.ledger import peek
from tests.work.bench import Bench

PATIENT = RetryPolicy(max_attempts=50, initial_delay=0.0, jitter=0.0)
SENT_TWICE = """
    select t.payload from {s}task t join {s}lane l on l.id = t.lane where l.type = 'sent'
    group by t.payload having count(*) > 1
"""


class World:
    """The functions, and what they did outside."""

    def __init__(self, check_alive: Callable[[], None]) -> None:
        self.ran: Counter[tuple[UUID, str]] = Counter()
        self._check_alive = check_alive

    def register(self, app: Holdfast) -> Any:
        async def effect(name: int) -> int:
            self._check_alive()
            self.ran[current().task_id, f"step s{name}"] += 1
            return name + 1

        @app.durable(name="child", retry_policy=PATIENT)
        async def child(name: int) -> int:
            return name * 2

        @app.durable(name="bad", retry_policy=RetryPolicy(max_attempts=20, retry_for=(OSError,)))
        async def bad(name: int) -> None:
            raise ValueError(f"{name} failed")

        @app.durable(name="never", retry_policy=PATIENT)
        async def never(name: int) -> None:
            await Holdfast.sleep("1h")

        @app.durable(name="flow", retry_policy=PATIENT)
        async def flow(shape: Any) -> Any:
            return await walk(durable, shape)

        @app.durable(name="shared", cached=True, retry_policy=PATIENT)
        async def shared(name: int) -> int:
            return name

        @app.durable(name="sent", queue="nobody")
        async def sent(by: str, name: int) -> None: ...

        async def send(name: int) -> None:
            await app.dispatch(sent, str(current().task_id), name)

        durable = Durable(effect, child, flow, bad, never, shared, send)
        return flow


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seeds", [range(15), pytest.param(range(15, 150), marks=pytest.mark.long)], ids=["few", "many"]
)
async def test_random_functions_give_what_they_give_without_us(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    crashing = Crashing(bench)
    world = World(crashing.check_alive)
    flow = crashing.register(world.register)
    crashes = 0
    for seed in seeds:
        chance = random.Random(seed)
        shape = grow(chance)
        want = json.loads(json.dumps(await walk(Direct(), shape)))
        monkeypatch.setattr(arrivals, "_LINGER", chance.choice([0.0, 1.0]))

        async def start(shape: Any = shape) -> TaskHandle[Any]:
            return await crashing.rescuer.dispatch(flow, shape)

        fatal, after = chance.randint(1, 30), chance.random() < 0.5
        _, found = await crashing.run(fatal, start, after=after)
        doomed = crashing.doomed
        assert doomed
        assert found == want, f"seed {seed}: {shape}"
        crashes += doomed.dead
        twice = [key for key, count in world.ran.items() if count > 1]
        assert not [key for key in twice if key in doomed.recorded], f"seed {seed}"
        world.ran.clear()
    assert crashes > 5
    assert peek(bench.place, SENT_TWICE) == []
