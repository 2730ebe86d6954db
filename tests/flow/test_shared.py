"""Branches of one function that wait for one task: it is given up only with the last of them."""

import asyncio

from holdfast import Holdfast
from tests.flow.acts import ONCE, number_of
from tests.flow.slowly import slow_commits
from tests.work.bench import Bench


async def test_who_gives_up_a_shared_child_leaves_it_to_the_other_branch(bench: Bench) -> None:
    @bench.app.durable(name="rate", idempotent=True)
    async def rate(day: int) -> int:
        await Holdfast.sleep(1)
        return 10 * day

    async def hasty() -> int:
        try:
            async with asyncio.timeout(0.3):
                return await rate(4)
        except TimeoutError:
            return 0

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent() -> list[int]:
        return list(await asyncio.gather(hasty(), rate(4), hasty()))

    async with bench.worker():
        assert await (await bench.app.dispatch(parent)).result(timeout=30) == [0, 40, 0]


async def test_who_gives_up_while_it_is_asked_leaves_the_child_to_the_other_branch(
    bench: Bench,
) -> None:
    """Nobody knew yet that they share it: it was cancelled."""

    @bench.app.durable(name="rate")
    async def rate(day: int) -> int:
        await asyncio.sleep(1.0)
        return 10 * day

    async def ask() -> int:
        return await rate.options(idempotency_key="one")(4)

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent() -> int:
        await Holdfast.step("one", int)
        hasty, patient = asyncio.create_task(ask()), asyncio.create_task(ask())
        await asyncio.sleep(0.2)
        hasty.cancel()
        return await patient

    await slow_commits(bench, of="child", by=0.4)
    async with bench.worker():
        assert await (await bench.app.dispatch(parent)).result(timeout=30) == 40
    assert number_of(bench, "rate") == 1
