"""Whether today's code fits a recorded run, of coroutines and of sync functions alike."""

import asyncio
import time
from contextlib import suppress

from holdfast import Holdfast, current
from holdfast.flow.checking import Run, check
from tests.work.bench import Bench


def add(a: int) -> int:
    return a + 1


async def recorded(bench: Bench, function) -> Run:
    """Its run, from a worker."""
    async with bench.worker():
        task = await bench.app.dispatch(function, 1)
        await bench.app.wait_for(task, timeout=60)
    return Run.read(await (await bench.app.desk()).export(task.id))


def sync_one(bench: Bench, *names: str, blocks: float = 0.0, error: bool = False):
    def flow(n: int) -> int:
        for name in names:
            n = Holdfast.run(Holdfast.step(name, add, n))
        time.sleep(blocks)
        if error:
            raise ValueError(n)
        return n

    return bench.new_app().durable(name="flow")(flow)


async def test_a_sync_function_that_fits_its_run(bench: Bench):
    run = await recorded(bench, bench.app.durable(name="flow")(sync_one(bench, "a", "b").function))
    for names, told in (
        (("a", "b"), "it comes to its end"),
        (("a", "b", "c"), "it goes on with step c"),
    ):
        found = await check(sync_one(bench, *names), run)
        assert (found.fits, found.told) == (True, told)
    found = await check(sync_one(bench, "a", "b", error=True), run)
    assert (found.fits, found.told) == (True, "it ends with ValueError: 3")


async def test_a_sync_function_that_does_not_fit_its_run(bench: Bench):
    run = await recorded(bench, bench.app.durable(name="flow")(sync_one(bench, "a", "b").function))
    for names in (("b", "a"), ("a",), (), ("a", "c")):
        found = await check(sync_one(bench, *names), run)
        assert (found.fits, "recorded, not asked" in found.told) == (False, True)


async def test_a_sync_function_that_blocks_is_not_waited_for(bench: Bench):
    run = await recorded(bench, bench.app.durable(name="flow")(sync_one(bench, "a").function))
    found = await check(sync_one(bench, "a", blocks=3.0), run, seconds=0.2)
    assert (found.fits, found.told) == (
        False,
        "the replay did not come to its end within 0.2 s",
    )


async def test_a_check_writes_nothing_that_a_dispatch_depends_on(bench: Bench):
    """What a value decides, or who was cancelled in the very turn in which its sleep was over, is
    written before anything is dispatched: but not in a check."""
    rests, goes_on = asyncio.Event(), asyncio.Event()

    @bench.app.durable(name="leaf")
    async def leaf() -> None: ...

    @bench.app.durable(name="flow")
    async def flow(n: int) -> None:
        with suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(Holdfast.sleep(0.2))
                await Holdfast.sleep(0.2)
                raise ValueError("away with the other, whose time is over too")
        rests.set()
        await goes_on.wait()
        if n:
            current().now()
        await bench.app.dispatch(leaf)

    async with bench.worker():
        for n in (0, 1):
            rests.clear()
            goes_on.clear()
            task = await bench.app.dispatch(flow, n)
            await rests.wait()
            run = Run.read(await (await bench.app.desk()).export(task.id))
            goes_on.set()
            found = await check(flow, run)
            assert (found.fits, found.told) == (True, "it goes on with dispatch leaf")
            await task.result(timeout=30)


async def test_an_error_of_todays_code_is_told_before_what_it_did_not_ask_for(bench: Bench):
    @bench.app.durable(name="flow")
    async def flow(n: int) -> int:
        return await Holdfast.step("a", add, n)

    @bench.new_app().durable(name="flow")
    async def broken(n: int) -> int:
        raise RuntimeError("boom")

    found = await check(broken, await recorded(bench, flow))
    assert not found.fits
    assert found.told.startswith("it ends with RuntimeError: boom, and the code does not ask")
    assert "recorded, not asked: step a" in found.told
