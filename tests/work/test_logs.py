"""What functions log is kept with their attempts."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import RetryPolicy, current
from holdfast.clock import SystemClock
from holdfast.context import Context, running
from holdfast.tasks.lifecycle import Done
from holdfast.work.holding import Holding
from holdfast.work.logs import TaskLogs
from tests.work.bench import Bench

shop = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def _all_is_logged() -> Iterator[None]:
    shop.setLevel(logging.DEBUG)
    yield
    shop.setLevel(logging.NOTSET)


async def kept(bench: Bench, task: object) -> list[tuple[int, str, str]]:
    lines = await (await bench.store()).logs(task.id, limit=1000)  # type: ignore[attr-defined]
    return [(line.fence, line.level, line.message) for line in lines]


async def test_lines_are_kept_by_attempt(bench: Bench) -> None:
    @bench.app.durable(retry_policy=RetryPolicy(max_attempts=2, initial_delay=0.0, jitter=0.0))
    async def work(fails: list[int]) -> None:
        shop.info("order %d", 7)
        try:
            raise RuntimeError("no luck")
        except RuntimeError:
            shop.exception("it went wrong")
            if not tries:
                tries.append(1)
                raise

    tries: list[int] = []
    task = await bench.app.dispatch(work, [])
    async with bench.worker():
        await task.result(timeout=60)
    (first, second, third, fourth) = await kept(bench, task)
    assert (first, third) == ((1, "INFO", "order 7"), (2, "INFO", "order 7"))
    assert second[:2] == (1, "ERROR")
    assert second[2].startswith("it went wrong\nTraceback")
    assert fourth[0] == 2


async def test_functions_in_threads_are_heard(bench: Bench) -> None:
    @bench.app.durable
    def work() -> None:
        shop.warning("from a thread")

    task = await bench.app.dispatch(work)
    async with bench.worker():
        await task.result(timeout=60)
    assert await kept(bench, task) == [(1, "WARNING", "from a thread")]


async def test_lines_are_there_while_the_function_runs(bench: Bench) -> None:
    release = asyncio.Event()

    @bench.app.durable
    async def work() -> None:
        shop.info("begun")
        await release.wait()
        shop.info("released")

    task = await bench.app.dispatch(work)
    async with bench.worker():
        async with asyncio.timeout(60):
            while not await kept(bench, task):
                await asyncio.sleep(0.01)
        release.set()
        await task.result(timeout=60)
    assert [line[2] for line in await kept(bench, task)] == ["begun", "released"]


async def test_lines_of_an_attempt_that_ends_itself_are_kept(bench: Bench) -> None:
    @bench.app.durable
    async def work() -> None:
        shop.info("said last")
        await current().release(Done(b"null"))

    task = await bench.app.dispatch(work)
    async with bench.worker():
        await task.result(timeout=60)
    assert await kept(bench, task) == [(1, "INFO", "said last")]


async def test_what_is_too_much_is_counted(bench: Bench) -> None:
    @bench.app.durable
    async def work() -> None:
        for n in range(1500):
            shop.info("line %d", n)

    task = await bench.app.dispatch(work)
    async with bench.worker():
        await task.result(timeout=60)
    store = await bench.store()
    lines = await store.logs(task.id, limit=1000)
    lines += await store.logs(task.id, after=(1, lines[-1].position), limit=1000)
    assert [line.message for line in lines[:1000]] == [f"line {n}" for n in range(1000)]
    assert [line.left_out for line in lines[1000:]] == [500]


async def test_each_worker_keeps_its_own_and_nothing_of_others(bench: Bench) -> None:
    @bench.app.durable
    async def work(i: int) -> None:
        shop.info("work %d", i)

    tasks = await bench.app.dispatch_many([work.call(i) for i in range(20)])
    async with bench.worker(max_concurrency=2), bench.worker(max_concurrency=2):
        shop.info("nobody's")
        for task in tasks:
            await task.result(timeout=60)
    assert [await kept(bench, t) for t in tasks] == [[(1, "INFO", f"work {i}")] for i in range(20)]


async def test_nothing_is_kept_where_nobody_wants_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TASK_LOGS", "0")
    app = bench.new_app()

    @app.durable
    async def work() -> None:
        shop.info("unheard")

    task = await app.dispatch(work)
    async with bench.worker(app):
        await task.result(timeout=60)
    assert await kept(bench, task) == []


async def test_a_call_whose_arguments_do_not_fit_is_kept_and_not_told_on_stderr(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where logging says which arguments they were, secrets and all."""

    @bench.app.durable(name="work")
    async def work() -> None: ...

    task = await bench.app.dispatch(work)
    store = await bench.store()
    lanes = list((await store.lanes()).lanes)
    minute = timedelta(minutes=1)
    (claimed,) = (await store.claim(worker=1, lanes=lanes, want=1, lease=minute)).tasks
    holding = Holding(SystemClock(), 60.0)
    holding.add([claimed.lease], holding.now())
    logs = TaskLogs(store, holding)
    keeper: Any = None
    token = running.set(Context(claimed, keeper, secrets=lambda: frozenset({"hunter2"})))
    try:
        made = {"name": "shop", "msg": "login %d", "args": ("hunter2",), "levelname": "INFO"}
        logs.handle(logging.makeLogRecord(made))
    finally:
        running.reset(token)
    await logs.write([claimed.lease])
    ((_, _, said),) = await kept(bench, task)
    assert said.startswith("login %d (its arguments do not fit")
    assert capsys.readouterr().err == ""


async def test_lines_of_a_lost_lease_are_let_go_of(bench: Bench) -> None:
    @bench.app.durable(name="work")
    async def work() -> None: ...

    task = await bench.app.dispatch(work)
    store = await bench.store()
    lanes = list((await store.lanes()).lanes)
    minute = timedelta(minutes=1)
    (claimed,) = (await store.claim(worker=1, lanes=lanes, want=1, lease=minute)).tasks
    holding = Holding(SystemClock(), 60.0)
    holding.add([claimed.lease], holding.now())
    logs = TaskLogs(store, holding)
    keeper: Any = None
    token = running.set(Context(claimed, keeper))
    try:
        logs.handle(logging.makeLogRecord({"name": "shop", "msg": "late", "levelname": "INFO"}))
    finally:
        running.reset(token)
    await store.revoke(task.id, claimed.lease.fence)
    await logs.write([claimed.lease])
    assert not logs._said, "else it was refused again every second"
    assert await kept(bench, task) == []
