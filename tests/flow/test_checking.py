"""Whether today's code fits a recorded run, of coroutines and of sync functions alike."""

import time

from holdfast import Holdfast
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
