"""Durable functions of Holdfast: `python -m bench.peers.holdfast_flows_peer SIZES`."""

import asyncio
import os
import sys
import time

import uvloop

from bench.peers.flow_sizes import Rates, Sizes, told
from holdfast import Holdfast, durable

SETTINGS = "one process that dispatches and serves, 200 slots; each step and child a commit"


async def nothing() -> None: ...


@durable(name="flows:steps", queue="bench")
async def steps(count: int) -> None:
    for _ in range(count):
        await Holdfast.step("step", nothing)


@durable(name="flows:child", queue="bench")
async def child(i: int) -> int:
    return i


@durable(name="flows:chain", queue="bench")
async def chain(count: int) -> None:
    for i in range(count):
        await child(i)


async def main(sizes: Sizes) -> Rates:
    url = os.environ["BENCH_URL"]
    async with Holdfast.bootstrap(url, serve=True, max_concurrency=200) as app:
        for warm in await app.dispatch_many([steps.call(20), chain.call(5)]):
            await warm.result(timeout=60)
        began = time.perf_counter()
        await (await app.dispatch(steps, sizes.steps)).result(timeout=60)
        one = time.perf_counter()
        calls = [steps.call(sizes.each) for _ in range(sizes.functions)]
        tasks = await app.dispatch_many(calls)
        await asyncio.gather(*(task.result(timeout=60) for task in tasks))
        many = time.perf_counter()
        await (await app.dispatch(chain, sizes.chain)).result(timeout=60)
        chained = time.perf_counter()
    return Rates(
        steps=sizes.steps / (one - began),
        functions=sizes.functions / (many - one),
        children=sizes.chain / (chained - many),
    )


if __name__ == "__main__":
    told("holdfast", SETTINGS, uvloop.run(main(Sizes.read(sys.argv[1]))))
