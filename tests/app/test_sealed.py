"""An app whose data is sealed: all of it works, and the database shows none of it."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskFailed, current
from holdfast.errors import KeyConflict
from holdfast.sealing import KeyRing
from holdfast.upkeep.schedules import Planner

CANARY = "canary-4711"
KEY = bytes(range(32))
RING = KeyRing({"one": KEY})
TABLES = ("task", "outcome", "attempt", "step", "signal", "progress")


def register(app: Holdfast) -> tuple[Any, Any, Any]:
    @app.durable(name="child")
    async def child(word: str) -> str:
        return word + "!"

    @app.durable(name="flow", retry_policy=RetryPolicy(max_attempts=3, initial_delay=0.0))
    async def flow(word: str) -> list[str]:
        said = await child(word)
        same = await Holdfast.step("same", str, word)
        await current().progress(50, save={"word": word})
        return [said, same, await Holdfast.wait_for_signal("go")]

    @app.durable(name="fails", retry_policy=RetryPolicy(max_attempts=1))
    async def fails(word: str) -> None:
        raise RuntimeError("no luck")

    return child, flow, fails


async def stored(app: Holdfast) -> str:
    store: Any = (await app.home.client()).store
    schema = "" if app.home.is_sqlite else "holdfast."
    rows = [(await store.query(f"select * from {schema}{table}"))[1] for table in TABLES]
    return repr(rows)


async def work(app: Holdfast) -> Any:
    lifecycle = app.create_worker_lifecycle()
    working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02))
    await lifecycle.wait_until_ready()
    return lifecycle, working


async def test_all_of_it_works_and_the_database_shows_none_of_it(url: str) -> None:
    async with Holdfast(url, encryption=RING) as app:
        _, flow, fails = register(app)
        task = await app.dispatch(flow, CANARY)
        failing = await app.dispatch(fails, CANARY)
        lifecycle, working = await work(app)
        await app.send_signal(task, "go", CANARY)
        assert await task.result(timeout=60) == [f"{CANARY}!", CANARY, CANARY]
        with pytest.raises(TaskFailed, match="no luck"):
            await failing.result(timeout=60)
        lifecycle.request_drain()
        await working
        dump = await stored(app)
        assert "hf:sealed:1:one" in dump
        assert CANARY not in dump
        desk = await app.desk()
        assert CANARY.encode() in await desk.arguments(task.id)


async def test_tasks_that_the_clock_makes_are_sealed_too(url: str) -> None:
    async with Holdfast(url, encryption=RING) as app:

        @app.durable(name="tick", cron="* * * * * *")
        async def tick() -> None: ...

        planner = Planner(await app.home.client(), lambda: app.functions)
        assert await planner.sweep() > 0
        assert "kwargs" not in await stored(app)


async def test_the_same_key_makes_one_task_also_after_keys_were_replaced(url: str) -> None:
    both = KeyRing({"two": bytes(32), "one": KEY})
    ids = []
    for ring in (RING, both):
        async with Holdfast(url, encryption=ring) as app:
            child, *_ = register(app)
            ids.append((await app.dispatch(child.options(idempotency_key="k"), CANARY)).id)
            with pytest.raises(KeyConflict):
                await app.dispatch(child.options(idempotency_key="k"), "another")
    assert ids[0] == ids[1]


async def test_what_no_key_opens_fails_and_runs_once_its_key_is_back(url: str) -> None:
    async with Holdfast(url, encryption=RING) as app:
        child, *_ = register(app)
        task = await app.dispatch(child, CANARY)
    async with Holdfast(url, encryption=KeyRing({"other": bytes(32)})) as app:
        register(app)
        lifecycle, working = await work(app)
        assert (await app.wait_for(task.id, timeout=60)).status == "failed"
        lifecycle.request_drain()
        await working
    async with Holdfast(url, encryption=RING) as app:
        register(app)
        assert await app.retry(task.id)
        lifecycle, working = await work(app)
        ended = await app.wait_for(task.id, timeout=60)
        assert ended.result == f'"{CANARY}!"'.encode()
        lifecycle.request_drain()
        await working


async def test_what_came_before_the_first_key_is_read(url: str) -> None:
    async with Holdfast(url) as app:
        child, *_ = register(app)
        task = await app.dispatch(child, "plain")
    async with Holdfast(url, encryption=RING) as app:
        register(app)
        lifecycle, working = await work(app)
        assert (await app.wait_for(task.id, timeout=60)).result == b'"plain!"'
        lifecycle.request_drain()
        await working


async def test_keys_come_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS", f"env:{KeyRing.make()}")
    async with Holdfast(url) as app:
        child, *_ = register(app)
        await app.dispatch(child, CANARY)
        assert CANARY not in await stored(app)
