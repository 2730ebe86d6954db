"""Who takes what, in which order, and how many at once."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from holdfast.notifier import EVERYTHING, Hint
from holdfast.tasks.task import TaskStatus
from tests.work.bench import Bench, until


class Room:
    """Counts who is inside, and lets them out when told."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.order: list[Any] = []
        self.door = asyncio.Event()

    async def visit(self, name: str, what: Any = None) -> None:
        self.order.append(what)
        self.inside[name] += 1
        self.peak[name] = max(self.peak[name], self.inside[name])
        await self.door.wait()
        self.inside[name] -= 1


@pytest.mark.parametrize(
    ("wishes", "serving", "taken"),
    [
        ({"queue": "mail"}, {"queues": ["mail"]}, True),
        ({"queue": "mail"}, {"queues": ["default"]}, False),
        ({"queue": "mail"}, {}, True),
        ({"tags": ["billing", "eu"]}, {"tags": ["eu", "x"]}, True),
        ({"tags": ["billing"]}, {"tags": ["eu"]}, False),
        ({}, {"tags": ["eu"]}, True),
        ({"tags": ["billing"]}, {}, True),
        ({"requires": ["gpu", "big"]}, {"capabilities": ["gpu", "big", "x"]}, True),
        ({"requires": ["gpu", "big"]}, {"capabilities": ["gpu"]}, False),
        ({"requires": ["gpu"]}, {}, False),
        ({}, {"capabilities": ["gpu"]}, True),
        ({"tenant": "acme"}, {"tenants": ["acme"]}, True),
        ({"tenant": "acme"}, {"tenants": ["other"]}, False),
        ({"tenant": "acme"}, {}, True),
    ],
)
async def test_a_worker_takes_what_it_serves_and_nothing_else(
    bench: Bench, wishes: dict[str, Any], serving: dict[str, Any], taken: bool
) -> None:
    @bench.app.durable
    async def work() -> int:
        return 1

    @bench.app.durable(queue="marker")
    async def marker() -> int:
        return 2

    asked = await bench.app.dispatch(work.options(**wishes))
    if queues := serving.get("queues"):
        serving = {**serving, "queues": [*queues, "marker"]}
    tenant = (serving.get("tenants") or ["default"])[0]
    async with bench.worker(**serving):
        last = await bench.app.dispatch(marker.options(tenant=tenant, priority=-9))
        assert await last.result(timeout=60) == 2
        if taken:
            assert await asked.result(timeout=60) == 1
        else:
            assert (await asked.state()).status is TaskStatus.PENDING


async def test_the_urgent_come_first_and_equals_in_their_order(bench: Bench) -> None:
    room = Room()
    room.door.set()

    @bench.app.durable
    async def work(what: int) -> None:
        await room.visit("", what)

    wishes = [(0, 1), (5, 2), (0, 3), (9, 4), (5, 5)]
    calls = [work.options(priority=priority).call(what) for priority, what in wishes]
    tasks = await bench.app.dispatch_many(calls)
    async with bench.worker(max_concurrency=1):
        for task in tasks:
            await task.result(timeout=60)
    assert room.order == [4, 2, 5, 1, 3]


async def test_no_more_run_at_once_than_a_function_allows(bench: Bench) -> None:
    room = Room()

    @bench.app.durable(max_concurrent=3)
    async def work(i: int) -> None:
        await room.visit("all", i)

    tasks = await bench.app.dispatch_many([work.call(i) for i in range(12)])
    async with bench.worker(), bench.worker():
        await until(lambda: room.inside["all"] == 3)
        assert bench.leases() == 3, "nothing is taken ahead from a limited lane"
        room.door.set()
        for task in tasks:
            await task.result(timeout=60)
    assert room.peak["all"] == 3


async def test_no_more_run_at_once_for_a_key_than_allowed(bench: Bench) -> None:
    room = Room()

    @bench.app.durable(max_concurrent=1, concurrency_key="customer")
    async def work(customer: str, i: int) -> None:
        await room.visit(customer, i)

    calls = [work.call(customer, i) for i in range(4) for customer in ("a", "b", "c")]
    tasks = await bench.app.dispatch_many(calls)
    async with bench.worker():
        await until(lambda: room.inside.total() == 3)
        assert bench.leases() == 3
        room.door.set()
        for task in tasks:
            await task.result(timeout=60)
    assert set(room.peak.values()) == {1}


async def test_a_rate_lets_no_more_through(bench: Bench) -> None:
    room = Room()
    room.door.set()

    @bench.app.durable(rate_limit="2/h")
    async def work(i: int) -> None:
        await room.visit("all", i)

    tasks = await bench.app.dispatch_many([work.call(i) for i in range(6)])
    async with bench.worker():
        await tasks[0].result(timeout=60)
        assert bench.leases() == 0
    assert room.order == [0]


async def test_a_paused_queue_waits_until_it_is_resumed(bench: Bench) -> None:
    @bench.app.durable(queue="mail")
    async def work() -> int:
        return 1

    @bench.app.durable
    async def marker() -> int:
        return 2

    await bench.app.pause_queue("mail")
    asked = await bench.app.dispatch(work)
    async with bench.worker():
        assert await (await bench.app.dispatch(marker)).result(timeout=60) == 2
        assert (await asked.state()).status is TaskStatus.PENDING
        assert await bench.app.queue_depth("mail") == 1
        await bench.app.resume_queue("mail")
        assert await asked.result(timeout=60) == 1


async def test_workers_at_rest_hear_at_once_that_a_queue_goes_on(bench: Bench) -> None:
    """Not at their next poll, which may be far."""

    @bench.app.durable(queue="mail")
    async def work() -> int:
        return 1

    await bench.app.pause_queue("mail")
    paused = await bench.app.dispatch(work)
    async with bench.worker(poll_interval=600, poll_interval_max=600):
        await asyncio.sleep(0.5)
        await bench.app.resume_queue("mail")
        assert await paused.result(timeout=60) == 1


async def test_workers_are_told_of_what_was_taken_back_from_the_dead(bench: Bench) -> None:
    @bench.app.durable
    async def work() -> int:
        return 1

    store, heard = await bench.store(), list[Hint]()
    await store.enqueue([work.call().draft()])
    lanes = list((await store.lanes()).lanes)
    await store.claim(worker=1, lanes=lanes, want=1, lease=timedelta(milliseconds=1))
    await bench.new_app().home.notifier().listen(heard.append)
    heard.clear()
    await until(bench.app.reset_expired_leases)
    await until(lambda: EVERYTHING in heard)


async def test_functions_that_come_while_the_worker_runs_are_served(bench: Bench) -> None:
    early = bench.new_app()

    @early.durable(name="late-comer")
    async def known_there() -> int:
        return 0

    waiting = await early.dispatch(known_there)

    @bench.app.durable
    async def marker() -> int:
        return 2

    async with bench.worker():
        assert await (await bench.app.dispatch(marker)).result(timeout=60) == 2

        @bench.app.durable(name="late-comer")
        async def known_here() -> int:
            return 7

        assert await waiting.result(timeout=60) == 7


async def test_a_function_that_came_later_is_in_the_registry(bench: Bench) -> None:
    async def known() -> bool:
        (worker,) = await (await bench.store()).workers()
        return "later@2" in worker.types

    async with bench.worker():
        assert not await known()

        @bench.app.durable(name="later", version="2")
        async def later() -> None: ...

        await until(known)


async def test_the_limit_of_a_function_that_came_later_is_kept(bench: Bench) -> None:
    @bench.app.durable
    async def first() -> None: ...

    running = most = 0

    async with bench.worker():
        await (await bench.app.dispatch(first)).result(timeout=60)

        @bench.app.durable(max_concurrent=1)
        async def late() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1

        tasks = await bench.app.dispatch_many([late.call() for _ in range(5)])
        for task in tasks:
            await task.result(timeout=60)
    assert most == 1
