"""Functions that will not leave when they are put down: they harm nobody but themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Holdfast
from tests.work.bench import Bench, until

FROZEN = 50_000  # rounds in which nobody else had the event loop

ASKS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "sleep": lambda child: Holdfast.sleep(3600),
    "signal": lambda child: Holdfast.wait_for_signal("never"),
    "step": lambda child: Holdfast.step("none", int),
    "child": lambda child: child(1),
    "join": lambda child: child.map([1, 2]),
    "some": lambda child: child.map([1, 2, 3], at_most=2),
    "anew": lambda child: Holdfast.continue_as_new(),
}


@pytest.mark.parametrize("ask", ASKS)
async def test_a_function_that_goes_round_in_a_circle_leaves_the_loop_to_others(
    bench: Bench, no_linger: None, ask: str
) -> None:
    refused, turns, stop = 0, 0, asyncio.Event()

    @bench.app.durable(name="child", queue="nobody")
    async def child(i: int) -> None: ...

    @bench.app.durable(name="stubborn")
    async def stubborn() -> None:
        nonlocal refused
        try:
            await Holdfast.sleep(3600)
        except BaseException:
            while not stop.is_set() and refused < FROZEN:
                try:
                    await ASKS[ask](child)
                except BaseException:
                    refused += 1

    async def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with bench.worker(queues=["default"]):
        await bench.app.dispatch(stubborn)
        counting = asyncio.create_task(count())
        await until(lambda: refused > 15)
        stop.set()
        await counting
    assert refused < FROZEN
