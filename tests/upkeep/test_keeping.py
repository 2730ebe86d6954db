"""The loop that chores share."""

import asyncio

from holdfast.upkeep.keeping import gently


async def test_long_chores_leave_most_of_the_time_to_the_work() -> None:
    busy, passes = 0.0, iter([10, 10, 10, 9])
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def sweep() -> int:
        nonlocal busy
        since = loop.time()
        await asyncio.sleep(0.02)
        busy += loop.time() - since
        return next(passes)

    await gently(sweep, 10, patience=60)
    assert next(passes, None) is None, "a pass that is not full is the last"
    assert (loop.time() - began) / busy > 3


async def test_chores_that_fall_behind_rest_no_more() -> None:
    busy, passes = 0.0, iter([10] * 30 + [9])
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def sweep() -> int:
        nonlocal busy
        since = loop.time()
        await asyncio.sleep(0.01)
        busy += loop.time() - since
        return next(passes)

    await gently(sweep, 10, patience=0.1)
    assert next(passes, None) is None
    assert (loop.time() - began) / busy < 3, "what comes faster would pile up for ever"
