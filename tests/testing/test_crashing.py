"""A crash stops a worker's code where it stands; another worker goes on from what is recorded."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, current
from holdfast.testing import AppUnderTest

ledger: list[str] = []


@pytest.fixture(autouse=True)
def clean() -> None:
    ledger.clear()


def effect(name: str) -> str:
    ledger.append(name)
    return name


async def slow_effect(name: str) -> str:
    try:
        ledger.append(name)
        await asyncio.sleep(3600)
    finally:
        ledger.append(f"{name} was cleared up")
    return name


@Holdfast.durable
async def chain() -> list[str]:
    try:
        names = [await Holdfast.step(name, effect, name) for name in ("a", "b", "c")]
        return [*names, current().worker_id]
    finally:
        ledger.append("finally")


@Holdfast.durable
def chain_in_a_thread() -> list[str]:
    return [Holdfast.run(Holdfast.step(name, effect, name)) for name in ("a", "b", "c")]


@Holdfast.durable
async def with_a_slow_one(patient: bool) -> list[str]:
    slow: Any = slow_effect if patient else effect
    return list(
        await asyncio.gather(
            Holdfast.step("slow", slow, "slow"), Holdfast.step("quick", effect, "quick")
        )
    )


@Holdfast.durable
async def beside_a_short_branch() -> None:
    ended = asyncio.create_task(asyncio.sleep(0))

    async def wait_for_it() -> str:
        await asyncio.wait({ended})
        return effect("one")

    await Holdfast.step("one", wait_for_it)
    await Holdfast.step("two", effect, "two")


@Holdfast.durable
async def parent() -> list[str]:
    ledger.append("parent")
    await Holdfast.step("before", effect, "before")
    return await chain()


async def test_after_a_step_the_next_worker_goes_on_behind_it(app: AppUnderTest):
    crash = app.crash_at(chain, after="b")
    task = await app.dispatch(chain)
    assert await app.drain() == 1
    assert crash.happened
    assert await task.result(timeout=30) == ["a", "b", "c", "worker-2"]
    assert ledger == ["a", "b", "c", "finally"]  # nothing was cleared up where it crashed


async def test_during_a_step_it_runs_again(app: AppUnderTest):
    app.crash_at(chain, during="b")
    task = await app.dispatch(chain)
    await app.drain()
    assert (await task.result(timeout=30))[:3] == ["a", "b", "c"]
    assert ledger == ["a", "b", "b", "c", "finally"]


async def test_a_sync_function_goes_on_behind_it_too(app: AppUnderTest):
    app.crash_at(chain_in_a_thread, after="b")
    task = await app.dispatch(chain_in_a_thread)
    assert await app.drain() == 1
    assert await task.result(timeout=30) == ["a", "b", "c"]
    assert ledger == ["a", "b", "c"]


async def test_each_crash_comes_once_and_costs_nothing_where_it_got_on(app: AppUnderTest):
    for name in ("a", "b"):
        app.crash_at(chain, after=name)
    task = await app.dispatch(chain)
    await app.drain()
    assert (await task.result(timeout=30))[3] == "worker-3"
    assert (await task.state()).try_count == 1
    assert ledger == ["a", "b", "c", "finally"]


async def test_a_crash_before_anything_was_recorded_costs_a_try(app: AppUnderTest):
    for _ in range(2):
        app.crash_at(chain, during="a")
    task = await app.dispatch(chain)
    await app.drain()
    assert (await task.state()).try_count == 3


async def test_a_task_whose_workers_all_die_becomes_a_dead_letter(app: AppUnderTest):
    for _ in range(3):
        app.crash_at(chain, during="a")
    task = await app.dispatch(chain)
    await app.drain()
    assert (await task.state()).status == "failed"


async def test_with_its_lease_kept_it_waits_for_the_clock(app: AppUnderTest):
    app.crash_at(chain, after="a", keep_lease=True)
    task = await app.dispatch(chain)
    assert await app.drain() == 0
    assert [lease.task for lease in await app.active_leases()] == [task.id]
    await app.advance("4m")
    assert await app.drain() == 0
    await app.advance("2m")
    assert await app.drain() == 1
    assert ledger == ["a", "b", "c", "finally"]


async def test_all_branches_die_together(app: AppUnderTest):
    both = asyncio.Event()

    async def beside_the_other() -> str:
        await both.wait()
        return effect("a2")

    async def after_the_crash() -> str:
        both.set()
        while not crash.happened:
            await asyncio.sleep(0.001)
        return effect("b2")

    @app.durable
    async def side_by_side() -> list[str]:
        async def branch(name: str, last: Callable[[], Coroutine[Any, Any, str]]) -> str:
            try:
                await Holdfast.step(name, effect, name)
                return await Holdfast.step(f"{name}2", last)
            finally:
                ledger.append(f"end of {name}")

        branches = branch("a", beside_the_other), branch("b", after_the_crash)
        return list(await asyncio.gather(*branches))

    crash = app.crash_at(side_by_side, after="a2")
    task = await app.dispatch(side_by_side)
    await app.drain()
    assert await task.result(timeout=30) == ["a2", "b2"]
    assert sorted(ledger) == ["a", "a2", "b", "b2", "end of a", "end of b"]


async def test_a_step_in_flight_dies_with_its_worker(app: AppUnderTest):
    app.crash_at(with_a_slow_one, after="quick")
    await app.dispatch(with_a_slow_one, True)
    draining = asyncio.create_task(app.drain())
    async with asyncio.timeout(60):
        while ledger.count("slow") < 2:  # the second worker has begun it anew
            await asyncio.sleep(0.001)
    assert ledger.count("quick") == 1
    assert "slow was cleared up" not in ledger
    draining.cancel()
    await asyncio.wait({draining})


async def test_a_step_is_recorded_before_the_next_one_begins(app: AppUnderTest):
    app.crash_at(beside_a_short_branch, during="two")
    await app.dispatch(beside_a_short_branch)
    await app.drain()
    assert ledger == ["one", "two", "two"]


async def test_a_child_crashes_and_its_parent_does_not_notice(app: AppUnderTest):
    app.crash_at(chain, after="c")
    task = await app.dispatch(parent)
    assert await app.drain() == 2
    assert (await task.result(timeout=30))[:3] == ["a", "b", "c"]
    assert ledger.count("before") == 1


async def test_others_are_not_harmed(app: AppUnderTest):
    app.crash_at(parent, after="before")
    tasks = await app.dispatch_many([parent.call(), chain.call(), chain.call()])
    await app.drain(max_concurrency=3)
    for task in tasks:
        assert (await task.result(timeout=30))[:3] == ["a", "b", "c"]


async def test_a_crash_that_never_comes_is_told():
    app = AppUnderTest()
    app.crash_at(chain, after="typo")
    await app.dispatch(chain)
    await app.drain()
    with pytest.raises(AssertionError, match=r"crash_at\(.*:chain, after='typo'\) never came"):
        app.check_crashes()
    app.end()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "after='step'"),
        ({"after": "a", "during": "b"}, "after='step'"),
        ({"after": ""}, "step name must be a text"),
        ({"during": 5}, "step name must be a text"),
    ],
)
def test_a_crash_comes_after_a_step_or_during_one(
    app: AppUnderTest, wrong: dict[str, Any], said: str
):
    with pytest.raises(InvalidInput, match=said):
        app.crash_at(chain, **wrong)


async def test_a_crash_is_for_one_version(app: AppUnderTest):
    @app.durable(name="greet")
    async def old() -> str:
        return await Holdfast.step("say", effect, "hello")

    @app.durable(name="greet", version="2")
    async def new() -> str:
        return await Holdfast.step("say", effect, "welcome")

    crash = app.crash_at(new, after="say")
    task = await app.dispatch(old)
    await app.drain()
    assert (await task.result(), crash.happened) == ("hello", False)
    task = await app.dispatch(new)
    await app.drain()
    assert (await task.result(), crash.happened) == ("welcome", True)
    assert ledger == ["hello", "welcome"]
