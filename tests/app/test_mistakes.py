"""Mistakes that people make at the door: each is told what to do, and nothing has changed."""

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidInput, LeaseLost, PayloadRefused
from holdfast.ids import new_id
from holdfast.processing import ProcessingWorker


@Holdfast.durable(name="mistakes:charge")
async def charge(order: int) -> int:
    return order


@Holdfast.durable(name="mistakes:once", idempotent=True)
async def once(order: int) -> int:
    return order


@Holdfast.durable(name="mistakes:nothing")
async def nothing() -> int:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (lambda: charge(7), r"dispatch\(f, 7\)"),
        (lambda: charge.call(7), r"dispatch_many\(\[f\.call\(7\)"),
        (lambda: print, "put @durable above"),
    ],
    ids=["a coroutine", "a call", "any function"],
)
async def test_what_is_dispatched_is_a_durable_function(url, wrong, advice):
    async with Holdfast(url) as app:
        with pytest.raises(InvalidInput, match=advice):
            await app.dispatch(wrong())
        assert await app.queue_depth() == 0


@pytest.mark.parametrize("wrong", [lambda: charge, lambda: charge(7)], ids=["itself", "called"])
async def test_what_is_dispatched_together_are_calls(url, wrong):
    async with Holdfast(url) as app:
        with pytest.raises(InvalidInput, match=r"write f\.call\(7\) for each"):
            await app.dispatch_many([charge.call(1), wrong()])
        assert await app.queue_depth() == 0


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (
            {"delay": "1h", "expires": "1m"},
            "before its delay of 1:00:00 is over",
        ),
        ({"delay": "1h", "expires": "1h"}, "longer expires"),
        ({"unique": "while_pending"}, r'write charge.options\(idempotency_key="order-7", unique='),
        ({"unique": "while_kept"}, "needs a key to go by"),
    ],
    ids=["expires before its time", "and just then", "unique without a key", "and however long"],
)
async def test_options_that_make_no_sense_together_are_refused(url, options, advice):
    async with Holdfast(url) as app:
        with pytest.raises(InvalidInput, match=advice):
            await app.dispatch(charge.options(**options), 7)
        with pytest.raises(InvalidInput, match=advice):
            await app.dispatch_many([charge.call(1), charge.options(**options).call(7)])
        assert await app.queue_depth() == 0


async def test_options_that_make_sense_together_are_not_refused(url):
    async with Holdfast(url) as app:
        await app.dispatch(charge.options(delay="1m", expires="1h"), 7)
        await app.dispatch(charge.options(delay=0, expires=0), 7)
        await app.dispatch(charge.options(unique="while_pending", idempotency_key="k"), 7)
        await app.dispatch(once.options(unique="while_pending"), 7)
        assert await app.queue_depth() == 4


async def test_an_edit_that_makes_no_sense_is_refused(url):
    async with Holdfast(url) as app:
        task = await app.dispatch(charge, 7)
        with pytest.raises(InvalidInput, match="longer expires"):
            await app.edit(task, delay="1h", expires="1m")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"backend": "sqlite:///x.db"}, "a URL goes first"),
        ({"store": Holdfast.backends.SQLiteBackend("x.db")}, "write backend="),
        ({"notification_backend": "redis://x"}, r"RedisBackend\(url\)"),
    ],
    ids=["a URL as a backend", "a backend as a URL", "a URL as notifications"],
)
def test_places_are_checked_when_an_app_is_made(options: dict[str, Any], advice):
    with pytest.raises(InvalidInput, match=advice):
        Holdfast(**options)


@pytest.mark.parametrize(
    "name", ["max_concurrent_jobs", "poll_interval_ms", "lease_duration_seconds"]
)
@pytest.mark.parametrize("value", [0, "x", True])
def test_a_processing_worker_speaks_of_its_own_settings(name, value):
    with pytest.raises(InvalidInput, match=f"{name} must be a number above 0"):
        ProcessingWorker("sqlite://:memory:", **{name: value})


async def test_only_the_attempt_itself_reports(url):
    async with Holdfast(url) as app:
        task = await app.dispatch(charge, 7)
        with pytest.raises(LeaseLost, match="only the running attempt itself"):
            await app.update_progress(task, 50)
        with pytest.raises(LeaseLost, match="only the running attempt itself"):
            await app.release_lease(task, "w", "done")


async def test_who_waits_in_vain_hears_for_what(url):
    async with Holdfast(url) as app:
        task = await app.dispatch(charge, 7)
        with pytest.raises(TimeoutError, match=rf"task {task.id} has not ended within 0\.1 s"):
            await task.result(timeout=0.1)


async def test_a_result_that_does_not_fit_names_its_task_and_function(serving):
    async with serving() as app:
        task = await app.dispatch(nothing)
        with pytest.raises(PayloadRefused, match=rf"{task.id}.*mistakes:nothing.*annotation"):
            await task.result(timeout=60)


async def test_more_tasks_than_a_page_counts_are_counted(url):
    async with Holdfast(url) as app:
        await app.dispatch_many([charge.call(n) for n in range(10_100)])
        await app.dispatch_many([charge.options(delay="1h").call(n) for n in range(10_050)])
        assert await app.queue_depth("default") == await app.queue_depth() == 20_150


async def test_a_transaction_of_the_app_carries_dispatches(url):
    async with Holdfast(url) as app:
        with contextlib.suppress(ZeroDivisionError):
            async with app.transaction() as conn:
                await app.dispatch(charge.options(conn=conn), 7)
                raise ZeroDivisionError
        assert await app.queue_depth() == 0
        async with app.transaction() as conn:
            task = await app.dispatch(charge.options(conn=conn), 7)
        assert (await task.state()).status == "pending"


class Bad:
    """A metrics recorder that fails for some of the tasks."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def task_completed(self, *, step_name: str, **labels: Any) -> None:
        if step_name == "mistakes:nothing":
            raise ValueError(step_name)
        self.told.append(step_name)

    def task_claimed(self, **labels: Any) -> None: ...
    def task_failed(self, **labels: Any) -> None: ...
    def dead_lettered(self, **labels: Any) -> None: ...
    def lease_renewed(self, **labels: Any) -> None: ...


async def test_a_recorder_that_fails_for_one_task_hears_of_the_others(url):
    recorder = Bad()
    async with Holdfast(url, metrics=recorder) as app:
        calls = [nothing.call() if n % 5 == 0 else charge.call(n) for n in range(20)]
        tasks = await app.dispatch_many(calls)
        lifecycle = app.create_worker_lifecycle()
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02))
        for task in tasks:
            await app.wait_for(task, timeout=60)
        lifecycle.request_drain()
        await working
    assert recorder.told == ["mistakes:charge"] * 16


async def test_an_id_that_nobody_knows_is_not_waited_for(url):
    async with Holdfast(url) as app:
        with pytest.raises(LookupError):
            await app.wait_for(new_id(), timeout=60)
