"""Among idle workers that match, those of a higher priority come first."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, current
from holdfast.store import WorkerRecord
from holdfast.work.rank import steps_below
from tests.waiting import eventually


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
    ],
)
def test_a_worker_waits_one_step_for_each_higher_priority_that_could_take_it(others, steps):
    assert steps_below(worker(1, 0, queues=("a",), tags=("x",)), others) == steps


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path, fresh_database):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return fresh_database(request.getfixturevalue("postgres_current"))


async def test_the_idle_worker_of_the_higher_priority_takes_what_comes(url):
    """Until it is full: then the other one takes the rest, a moment later."""
    app, go = Holdfast(url), asyncio.Event()

    @app.durable(name="who")
    async def who() -> str:
        return current().worker_id

    @app.durable(name="hold")
    async def hold() -> str:
        await go.wait()
        return current().worker_id

    async with app:
        lives = {name: app.create_worker_lifecycle(name) for name in ("first", "second")}
        serving = []
        for name, priority in (("first", 10), ("second", 0)):
            serving.append(
                asyncio.create_task(
                    app.serve(
                        lifecycle=lives[name],
                        worker_priority=priority,
                        max_concurrency=1,
                        poll_interval=60.0,
                        poll_interval_max=60.0,
                    )
                )
            )
            await lives[name].wait_until_ready()
            await eventually(lambda name=name: is_registered(app, name))  # type: ignore[misc]
        took = [await (await app.dispatch(who)).result(timeout=10) for _ in range(12)]
        held = await app.dispatch(hold)
        await eventually(lambda: is_running(app))
        spare = await (await app.dispatch(who)).result(timeout=10)
        go.set()
        assert (set(took), await held.result(timeout=10), spare) == ({"first"}, "first", "second")
        for life in lives.values():
            life.request_drain()
        await asyncio.gather(*serving)


async def is_registered(app: Holdfast, name: str) -> bool:
    workers = await (await app.home.client()).store.workers()
    return any(w.name == name and w.status == "ready" for w in workers)


async def is_running(app: Holdfast) -> bool:
    return bool(await app.active_leases())
