"""Tasks that were lost together: any of them may have killed the worker."""

import asyncio
import os
from datetime import timedelta

from holdfast import Holdfast
from tests.app.conftest import until
from tests.app.meeting import meet

LEASE = timedelta(seconds=0.2)


async def lose_together(app: Holdfast, times: int = 2) -> None:
    """A worker takes all that waits, and is never heard of again; and the next one too."""
    store = (await app.home.client()).store
    lanes = (await store.lanes()).lanes

    async def recovered() -> bool:
        await store.recover()
        return not await store.leases()

    for worker in range(times):
        taken = await store.claim(worker=worker, lanes=list(lanes), want=10, lease=LEASE)
        assert len(taken.tasks) == 3
        await until(recovered)


async def test_what_was_lost_together_once_runs_side_by_side_in_the_worker(url, tmp_path):
    place = tmp_path / "meeting"
    place.mkdir()
    async with Holdfast(url) as app:
        tasks = await app.dispatch_many([meet.call(str(place), name, 3) for name in "abc"])
        await lose_together(app, times=1)
        lifecycle = app.create_worker_lifecycle()
        working = asyncio.create_task(
            app.serve(lifecycle=lifecycle, spawn_suspects=True, poll_interval=0.02)
        )
        assert {await task.result(timeout=60) for task in tasks} == {os.getpid()}
        assert [(await task.state()).try_count for task in tasks] == [1, 1, 1]
        lifecycle.request_drain()
        await working


async def test_suspects_run_side_by_side_each_in_a_process_of_its_own(url, tmp_path):
    place = tmp_path / "meeting"
    place.mkdir()
    async with Holdfast(url) as app:
        tasks = await app.dispatch_many([meet.call(str(place), name, 3) for name in "abc"])
        await lose_together(app)
        lifecycle = app.create_worker_lifecycle()
        working = asyncio.create_task(
            app.serve(lifecycle=lifecycle, spawn_suspects=True, poll_interval=0.02)
        )
        processes = [await task.result(timeout=60) for task in tasks]
        assert len({*processes, os.getpid()}) == 4
        assert [(await task.state()).try_count for task in tasks] == [2, 2, 2]
        lifecycle.request_drain()
        await working


async def test_suspects_run_one_after_the_other_where_processes_would_not_do(url, tmp_path):
    async with Holdfast(url) as app:
        running = most = 0

        @app.durable
        async def work() -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.05)
            running -= 1
            return os.getpid()

        tasks = await app.dispatch_many([work.call() for _ in range(3)])
        await lose_together(app)
        lifecycle = app.create_worker_lifecycle()
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02))
        assert {await task.result(timeout=60) for task in tasks} == {os.getpid()}
        assert most == 1
        lifecycle.request_drain()
        await working
