"""A child whose idempotency key is other work's: a failure like others, also in a replay."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed
from tests.flow.acts import ONCE, journal, number_of
from tests.work.bench import Bench

CONFLICT = "holdfast.errors.KeyConflict"


async def test_a_conflict_that_is_caught_is_the_same_in_a_replay(
    bench: Bench, no_linger: None
) -> None:
    caught = []

    @bench.app.durable(name="charge", queue="nobody")
    async def charge(order: int) -> int:
        return order

    @bench.app.durable(name="fine")
    async def fine(i: int) -> int:
        return i

    async def conflicting() -> str:
        try:
            await charge.options(idempotency_key="k")(8)
        except TaskFailed as failed:
            caught.append(failed.type)
            return failed.type
        return "accepted"

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent() -> list[Any]:
        found = await asyncio.gather(fine(1), conflicting(), fine(2))
        await Holdfast.sleep(0.01)
        joined = await Holdfast.gather(
            fine(3), charge.options(idempotency_key="k")(9), return_exceptions=True
        )
        return [*found, joined[0], getattr(joined[1], "type", None), await fine(4)]

    await bench.app.dispatch(charge.options(idempotency_key="k"), 7)
    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=60) == [1, CONFLICT, 2, 3, CONFLICT, 4]
    assert set(caught) == {CONFLICT}
    assert len(caught) > 1
    assert number_of(bench, "charge") == 1
    assert number_of(bench, "fine") == 4
    assert (await journal(bench, task)).count("charge") == 2


async def test_children_with_one_key_and_different_arguments_are_a_conflict_of_the_second(
    bench: Bench,
) -> None:
    @bench.app.durable(name="charge")
    async def charge(order: int) -> int:
        return order

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent() -> list[Any]:
        keyed = charge.options(idempotency_key="k")
        first, second = await Holdfast.gather(keyed(1), keyed(2), return_exceptions=True)
        return [first, getattr(second, "type", None)]

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=60) == [1, CONFLICT]


async def test_a_conflict_that_escapes_fails_the_function_and_a_new_life_asks_again(
    bench: Bench,
) -> None:
    @bench.app.durable(name="charge", queue="charges", retry_policy=ONCE)
    async def charge(order: int) -> int:
        if order == 7:
            raise ValueError("declined")
        return order

    @bench.app.durable(name="parent")
    async def parent() -> int:
        return await charge.options(idempotency_key="k")(8)

    other = await bench.app.dispatch(charge.options(idempotency_key="k"), 7)
    async with bench.worker(queues=["default"]):
        task = await bench.app.dispatch(parent)
        with pytest.raises(TaskFailed, match="idempotency key 'k'"):
            await task.result(timeout=60)
        assert "retry" not in await bench.ends(task)
        async with bench.worker(queues=["charges"]):
            with pytest.raises(TaskFailed, match="declined"):
                await other.result(timeout=60)
            assert await bench.app.discard_dead_letter(other)
            assert await bench.app.replay_dead_letter(task)
            assert await task.result(timeout=60) == 8
