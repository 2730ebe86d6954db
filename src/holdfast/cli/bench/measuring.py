"""The figures: enqueue, drain, and pick-up of a lone task."""

import asyncio
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.cli.bench.place import place
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.loading import apply
from holdfast.clock import SystemClock
from holdfast.store import Store

__all__ = ["measure"]

_AT_ONCE = 1000
_MOST_LONE = 200
_PATIENCE = 600.0


async def measure(store: str | None, tasks: int, processes: int) -> dict[str, Any]:
    settings = apply(store=store)
    async with place(settings.store) as url:
        from holdfast.cli.bench.functions import app

        app.move(store=url)
        async with app:
            enqueued = await _enqueue(app, tasks)
            async with _workers(url, processes):
                drained = await _drain(app, tasks)
                waits = await _pick_up(app, min(_MOST_LONE, max(20, tasks // 100)))
    return {
        "store": url.partition(":")[0],
        "tasks": tasks,
        "processes": processes,
        "enqueued_per_second": round(tasks / enqueued),
        "drained_per_second": round(tasks / drained),
        "pick_up_p50_ms": round(statistics.median(waits), 2),
        "pick_up_p99_ms": round(statistics.quantiles(waits, n=100)[98], 2),
    }


async def _enqueue(app: Any, tasks: int) -> float:
    """Seconds, a thousand in one call."""
    from holdfast.cli.bench.functions import nothing

    clock = SystemClock()
    since = clock.boot()
    for first in range(0, tasks, _AT_ONCE):
        await app.dispatch_many([nothing.call()] * min(_AT_ONCE, tasks - first))
    return (clock.boot() - since) / 1e6


async def _drain(app: Any, tasks: int) -> float:
    """Seconds by the store's own times, from the first start to the last end: the start of the
    workers does not count."""
    store: Store = (await app.home.client()).store
    async with asyncio.timeout(_PATIENCE):
        while await app.queue_depth("bench") or await store.leases(limit=1):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    _, ((first, last, ended),) = await store.query(_SPAN_SQLITE if app.home.is_sqlite else _SPAN)
    if ended != tasks:
        raise Stop(Exit.FAILED, f"{ended} of {tasks} tasks are done, and none waits: tell us")
    return max(float(last) - float(first), 1e-6)


_SPAN = """
select extract(epoch from min(started_at)), extract(epoch from max(finished_at)), count(*)
from tasks
where status = 'done'
"""
_SPAN_SQLITE = """
select 86400.0 * julianday(min(started_at)), 86400.0 * julianday(max(finished_at)), count(*)
from tasks
where status = 'done'
"""


async def _pick_up(app: Any, count: int) -> list[float]:
    """Milliseconds from the hint of a lone task, which is given when the call returns, to its
    start in an idle worker."""
    from holdfast.cli.bench.functions import started_at

    clock, waits = SystemClock(), []
    for _ in range(count):
        task = await app.dispatch(started_at)
        told = clock.wall()
        waits.append(max(await task.result(timeout=30) - told, 0) / 1000)
        await asyncio.sleep(0.01)
    return waits


@asynccontextmanager
async def _workers(url: str, count: int) -> AsyncIterator[None]:
    workers = [await _start(url) for _ in range(count)]
    try:
        for worker in workers:
            assert worker.stdout
            if not await worker.stdout.readline():
                raise Stop(Exit.FAILED, "a worker did not start; its error is above")
        yield
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.terminate()
            await worker.wait()


async def _start(url: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast.worker", "--app", "holdfast.cli.bench.functions"),
        *("--store", url, "--concurrency", "100", "--log-level", "warning", "--with-parent"),
        stdin=PIPE,
        stdout=PIPE,
    )
