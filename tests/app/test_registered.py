"""What a worker says of itself is in the registry, and is what explanations go by."""

import asyncio

import pytest

from holdfast import Holdfast


async def test_a_worker_of_other_tenants_is_no_help(url: str):
    async with Holdfast(url) as app:

        @app.durable(name="send")
        async def send() -> None: ...

        lifecycle = app.create_worker_lifecycle("w")
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, tenants=["acme"]))
        await lifecycle.wait_until_ready()
        (worker,) = await (await app.desk()).workers()
        assert (worker.worker_id, worker.tenants) == ("w", ["acme"])
        await (await app.dispatch(send.options(tenant="acme"))).result(timeout=60)
        other = await app.dispatch(send.options(tenant="other"))
        (reason,) = await app.explain(other)
        told = "no live worker that knows it takes tasks of tenant 'other' (w does not)"
        assert reason.why == told
        assert "--tenants" in reason.advice
        (why,) = await (await app.desk()).why(other.id)
        assert why.why == reason.why
        lifecycle.request_drain()
        await working


async def test_a_worker_whose_slots_are_taken_is_why_the_next_one_waits(url: str):
    begun, go_on = asyncio.Event(), asyncio.Event()
    async with Holdfast(url) as app:

        @app.durable(name="send")
        async def send() -> None:
            begun.set()
            await go_on.wait()

        lifecycle = app.create_worker_lifecycle("w")
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, max_concurrency=1))
        await lifecycle.wait_until_ready()
        first = await app.dispatch(send)
        await begun.wait()
        second = await app.dispatch(send)
        (reason,) = await app.explain(second)
        assert reason.why == "the only slot of 1 worker is taken"
        assert "--concurrency" in reason.advice
        go_on.set()
        for task in (first, second):
            await task.result(timeout=60)
        lifecycle.request_drain()
        await working


@pytest.mark.parametrize(
    ("environment", "group"),
    [
        ({"GROUP_ID": "mailers"}, "mailers"),
        ({"WORKER_TYPE": "intake"}, "intake"),
        ({"WORKER_TYPE": "intake", "GROUP_ID": "mailers"}, "mailers"),
        ({}, ""),
    ],
)
async def test_workers_of_a_group_say_so(
    url: str, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], group: str
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with Holdfast.bootstrap(url, serve=True) as app:
        (worker,) = await (await app.desk()).workers()
        assert worker.group_id == group
        _, rows = await (await app.home.client()).store.query("select group_id from workers")
        assert [tuple(row) for row in rows] == [(group,)]
