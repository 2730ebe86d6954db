"""A worker that beats may still not work: blocked and deaf are told apart from ready."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Observer
from holdfast.stores.views import Views
from holdfast.work import renewal, vitals
from tests.waiting import eventually


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same worker with a quicker pulse."""
    monkeypatch.setattr(renewal, "PULSE", 0.05)
    monkeypatch.setattr(vitals, "BLOCKED_AFTER", 0.4)
    monkeypatch.setattr(vitals, "DEAF_AFTER", 0.4)


@asynccontextmanager
async def served(app: Holdfast, **options: Any) -> AsyncIterator[None]:
    lifecycle = app.create_worker_lifecycle("w")
    serving = asyncio.create_task(app.serve(lifecycle=lifecycle, **options))
    await lifecycle.wait_until_ready()
    try:
        yield
    finally:
        lifecycle.request_drain()
        await serving


async def registered(app: Holdfast, status: str) -> bool:
    (worker,) = await (await app.home.client()).store.workers()
    return worker.status == status


async def shown(app: Holdfast, status: str) -> bool:
    return bool(app.worker_status_overview()["workers"][0]["status"] == status)


@pytest.mark.usefixtures("quick")
async def test_a_worker_whose_loop_is_blocked_says_so_and_recovers(tmp_path):
    url = f"sqlite:///{tmp_path}/holdfast.db"
    lags: list[float] = []

    class Lags(Observer):
        def lagged(self, seconds: float) -> None:
            lags.append(seconds)

    app, seen = Holdfast(url, observers=[Lags()]), threading.Event()

    @app.durable(name="block")
    async def block() -> None:
        seen.wait(60)  # the loop stands still until somebody else has seen it

    def look() -> None:
        """From another thread, as another process would."""
        other = Holdfast(url)

        async def reached() -> list[Any]:
            workers = await (await other.home.client()).store.workers()
            return [w for w in workers if w.status == "blocked" and w.loop_lag >= 0.4]

        try:
            found = other.run_sync(eventually(reached))
            assert [w.name for w in found] == ["w"]
        finally:
            seen.set()
            other.run_sync(other.home.close())

    async with app, served(app):
        await eventually(lambda: registered(app, "ready"))
        looking = asyncio.create_task(asyncio.to_thread(look))
        task = await app.dispatch(block)
        await task.result(timeout=60)
        await looking
        await eventually(lambda: registered(app, "ready"))
        await eventually(lambda: shown(app, "ready"))
    assert max(lags) >= 0.4 > min(lags)


@pytest.mark.usefixtures("quick")
async def test_a_worker_that_beats_but_cannot_claim_is_deaf(postgres_current, fresh_database):
    url = fresh_database(postgres_current)
    app = Holdfast(url)

    @app.durable(name="anything")
    async def anything() -> None: ...

    await app.dispatch(anything)  # without a lane there is nothing to ask for
    async with app, served(app, poll_interval=0.05, poll_interval_max=0.05):
        await eventually(lambda: registered(app, "ready"))
        with psycopg.connect(url) as conn:
            # In a thread: it waits for a claim under way, which ends only while this loop runs.
            await asyncio.to_thread(
                conn.execute, "lock table holdfast.ready in access exclusive mode"
            )
            await eventually(lambda: registered(app, "deaf"))
            await eventually(lambda: shown(app, "deaf"))
        await eventually(lambda: registered(app, "ready"))


@pytest.mark.usefixtures("quick")
async def test_a_worker_whose_slots_are_full_is_not_called_deaf(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")
    inside, go = asyncio.Event(), asyncio.Event()

    @app.durable(name="hold")
    async def hold() -> None:
        inside.set()
        await go.wait()

    async with app, served(app, max_concurrency=1, poll_interval=0.05, poll_interval_max=0.05):
        task = await app.dispatch(hold)
        await inside.wait()
        await eventually(lambda: registered(app, "ready"))
        began, states = time.monotonic(), set()
        while time.monotonic() - began < 0.8:
            (worker,) = await (await app.home.client()).store.workers()
            states.add(worker.status)
            await asyncio.sleep(0.02)
        assert "ready" in states
        assert states <= {"ready", "blocked"}  # blocked: where the machine stood still
        go.set()
        await task.result(timeout=60)


async def test_numbers_are_told_long_before_the_next_heartbeat(tmp_path, monkeypatch):
    """Else whoever looks at the fleet sees nothing of the first half minute, and of a worker that
    was killed never more."""
    monkeypatch.setattr(renewal, "PULSE", 0.05)
    monkeypatch.setattr(renewal, "_NEWS", 0.2)
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")

    @app.durable
    async def work() -> None: ...

    async with app, served(app):
        await (await app.dispatch(work)).result(timeout=30)

        async def counted() -> bool:
            (worker,) = await (await app.home.client()).store.workers()
            return worker.tasks_acquired == 1

        await eventually(counted, 15)


async def test_who_else_is_there_is_asked_without_counting_all_leases(tmp_path, monkeypatch):
    """Each worker asks with each heartbeat: a thousand of them would count theirs all day."""
    monkeypatch.setattr(renewal, "PULSE", 0.05)
    asked: list[bool] = []
    workers = Views.workers

    async def spied(self: Views, *, counted: bool = True) -> Any:
        asked.append(counted)
        return await workers(self, counted=counted)

    monkeypatch.setattr(Views, "workers", spied)
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")

    async def was_asked() -> bool:
        return bool(asked)

    async with app, served(app):
        await eventually(was_asked, 15)
    assert not any(asked)
