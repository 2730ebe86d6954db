"""The loop that chores share."""

import asyncio

from holdfast.upkeep.keeping import gently


async def times_longer_than_its_passes(passes: int, patience: float) -> float:
    """How long all of it takes, for so many passes of which the last is not full."""
    loop, busy, left = asyncio.get_running_loop(), 0.0, iter([10] * (passes - 1) + [9])
    began = loop.time()

    async def sweep() -> int:
        nonlocal busy
        since = loop.time()
        await asyncio.sleep(0.01)
        busy += loop.time() - since
        return next(left)

    await gently(sweep, 10, patience=patience)
    assert next(left, None) is None, "a pass that is not full is the last"
    return (loop.time() - began) / busy


async def test_long_chores_leave_most_of_the_time_to_the_work() -> None:
    assert await times_longer_than_its_passes(6, patience=60) > 3


async def test_chores_that_fall_behind_rest_no_more() -> None:
    """What comes faster would pile up for ever."""
    assert await times_longer_than_its_passes(30, patience=0.1) < 3
