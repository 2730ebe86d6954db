"""Limits follow the code: what the worker that started last says; and an operator goes before."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.errors import UnknownType


@asynccontextmanager
async def deployed(url, **versions):
    """A worker whose code has a function `pay` with these options, by version."""
    async with Holdfast(url) as app:
        for version, options in (versions or {"_": {}}).items():

            @app.durable(name="shop:pay", version=version.strip("_"), **options)
            async def pay(order: int) -> None: ...

        lifecycle = app.create_worker_lifecycle()
        async with _serving(app, lifecycle):
            yield app


@asynccontextmanager
async def _serving(app, lifecycle):
    working = asyncio.create_task(app.serve(lifecycle=lifecycle))
    await lifecycle.wait_until_ready()
    try:
        yield
    finally:
        lifecycle.request_drain()
        await working


async def in_force(app):
    """Of ours: other tests' functions have limits too."""
    return {
        (one.name, one.max_concurrent, one.rate_limit)
        for one in await app.limits()
        if one.name in ("shop:pay", "mail", "acme")
    }


async def test_a_limit_that_left_the_code_is_lifted_by_the_worker_that_starts(url):
    async with deployed(url, _={"max_concurrent": 5, "rate_limit": "10/m"}) as old:
        assert await in_force(old) == {("shop:pay", 5, "10/m")}
        async with deployed(url) as new:  # side by side: the newest is right
            assert await in_force(new) == set()
        assert await in_force(old) == set()
    async with deployed(url, _={"max_concurrent": 5}) as again:
        assert await in_force(again) == {("shop:pay", 5, None)}


async def test_versions_share_the_limit_of_the_last_that_has_one(url):
    versions = {"_1": {"max_concurrent": 3}, "_2": {"max_concurrent": 4}, "_3": {}}
    async with deployed(url, **versions) as app:
        assert await in_force(app) == {("shop:pay", 4, None)}


async def test_what_an_operator_says_outlives_a_deployment_and_is_lifted_by_an_operator(url):
    async with deployed(url, _={"max_concurrent": 5}) as app:
        view = await app.set_limit("type", "pay", max_concurrent=1)
        assert (view.name, view.set_by, view.running) == ("shop:pay", "operator", 0)
    async with deployed(url, _={"max_concurrent": 7}) as app:
        assert await in_force(app) == {("shop:pay", 1, None)}
        left = await app.lift_limit("type", app.functions.find("shop:pay"))
        assert (left.max_concurrent, left.set_by) == (7, "code")
        assert await app.lift_limit("queue", "mail") is None


async def test_queues_and_tenants_are_limited_by_operators_only(url):
    async with deployed(url) as app:
        await app.set_limit("queue", "mail", max_concurrent=2, rate_limit="100/m")
        await app.set_limit("tenant", "acme", rate_limit="5/10s")
        assert await in_force(app) == {("mail", 2, "100/m"), ("acme", None, "5/10s")}
        audit = await (await app.desk()).audits()
        assert [(one.verb, one.subject) for one in audit.data] == [
            ("limit.set", "tenant acme"),
            ("limit.set", "queue mail"),
        ]


@pytest.mark.parametrize(
    ("place", "terms", "said"),
    [
        (("queue", "mail"), {}, "say what to limit: max_concurrent or rate_limit"),
        (("queue", "mail"), {"max_concurrent": 0}, "max_concurrent must be a whole number"),
        (("queue", "mail"), {"max_concurrent_per_key": 1}, "belongs to a function"),
        (("queue", "mail"), {"rate_limit": "often"}, "'often' is not understood"),
        (("queue", "a b"), {"max_concurrent": 1}, "'a b' is not a name"),
        (("worker", "w"), {"max_concurrent": 1}, "on a type, queue or tenant, not on a 'worker'"),
    ],
)
async def test_what_is_no_limit_is_refused_and_nothing_is_noted(place, terms, said):
    async with Holdfast("sqlite://:memory:") as app:
        with pytest.raises(InvalidInput, match=said):
            await app.set_limit(*place, **terms)
        assert await app.limits() == []
        assert (await (await app.desk()).audits()).data == []


async def test_a_short_name_that_fits_several_functions_is_refused():
    async with Holdfast("sqlite://:memory:") as app:

        @app.durable(name="a:pay")
        async def pay() -> None: ...

        @app.durable(name="b:pay")
        async def repay() -> None: ...

        with pytest.raises(UnknownType, match="could be any of a:pay, b:pay"):
            await app.set_limit("type", "pay", max_concurrent=1)
