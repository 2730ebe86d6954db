"""Among idle workers that match, those of a higher priority come first."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast, Observer, TaskHandle, WorkerLifecycle, current
from holdfast.answers import WorkerRecord
from holdfast.work.rank import steps_below
from tests.waiting import eventually

GRACE = 1.0
SLOW = {
    "max_concurrency": 1, "poll_interval": 3600.0, "poll_interval_max": 3600.0,
    "priority_grace": GRACE,
}  # fmt: skip


def worker(id: int, priority: int, **rest: Any) -> WorkerRecord:
    return WorkerRecord(id=id, name=str(id), priority=priority, **rest)


@pytest.mark.parametrize(
    ("others", "steps"),
    [
        ([], 0),
        ([worker(2, 0), worker(3, -5)], 0),
        ([worker(2, 5), worker(3, 5)], 1),
        ([worker(2, 5), worker(3, 9)], 2),
        ([worker(2, 5, status="draining"), worker(3, 5, status="stale")], 0),
        ([worker(2, 5, status="blocked"), worker(3, 5, status="deaf")], 0),
        ([worker(2, 5, queues=("b",))], 0),
        ([worker(2, 5, queues=("a", "b"))], 1),
        ([worker(2, 5, tags=("y",))], 0),
        ([worker(2, 5, tags=("x",))], 1),
        ([worker(2, 5, tenant="acme")], 0),
    ],
)
def test_a_worker_waits_one_step_for_each_higher_priority_that_could_take_it(others, steps):
    assert steps_below(worker(1, 0, queues=("a",), tags=("x",)), others) == steps


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path, fresh_database):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return fresh_database(request.getfixturevalue("postgres_current"))


class Rests(Observer):
    """How often each worker found nothing to do."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def for_worker(self, worker: str, facts: object) -> Observer:
        rests = self.count

        class One(Observer):
            def rested(self, seconds: float) -> None:
                rests[worker] += 1

        return One()


async def test_the_idle_worker_of_the_higher_priority_takes_what_comes(url):
    """Until it is full: then the other one takes the rest, a moment later."""
    rests, go, loop = Rests(), asyncio.Event(), asyncio.get_running_loop()
    app, began = Holdfast(url, observers=[rests]), list[float]()

    @app.durable(name="who")
    async def who() -> str:
        began.append(loop.time())
        return current().worker_id

    @app.durable(name="hold")
    async def hold() -> str:
        began.append(loop.time())
        await go.wait()
        return current().worker_id

    async def taken(function: Any) -> TaskHandle[str]:
        """A task that runs. Where the machine was so slow that the grace was over before it was
        taken, it is no matter by whom: another one is dispatched, once both are idle again."""
        while True:
            rested, asked, count = rests.count["second"], loop.time(), len(began)
            task = await app.dispatch(function)
            await eventually(lambda: has_grown(began, count))  # noqa: B023
            if began[-1] - asked < GRACE:
                return task
            go.set()
            await task.result(timeout=60)
            go.clear()
            await second_rests(rested)

    async def second_rests(count: int) -> None:
        async def more() -> bool:
            return rests.count["second"] > count

        await eventually(more)

    async def next_taker() -> str:
        """Once both workers are idle again."""
        before = rests.count["second"]
        taker = await (await taken(who)).result(timeout=60)
        await second_rests(before)
        return taker

    async def started(name: str, priority: int) -> tuple[WorkerLifecycle, asyncio.Task[None]]:
        life = app.create_worker_lifecycle(name)
        working = asyncio.create_task(
            app.serve(lifecycle=life, worker_priority=priority, **SLOW)  # type: ignore[arg-type]
        )
        await eventually(lambda: is_registered(app, name))
        return life, working

    async with app:
        before, leaving = await started("before", 10)
        second = await started("second", 0)  # it learns of the other at its start
        before.request_drain()
        await leaving
        first = await started("first", 10)  # and hears hints earlier than this one
        took = [await next_taker() for _ in range(3)]
        held = await taken(hold)
        spare = await (await app.dispatch(who)).result(timeout=60)
        go.set()
        assert (took, await held.result(timeout=60), spare) == (["first"] * 3, "first", "second")
        for life, working in (first, second):
            life.request_drain()
            await working


async def is_registered(app: Holdfast, name: str) -> bool:
    workers = await (await app.home.client()).store.workers()
    return any(w.name == name and w.status == "ready" for w in workers)


async def has_grown(seen: list[float], count: int) -> bool:
    return len(seen) > count
