"""Durable functions of DBOS: `python -m bench.peers.dbos_flows_peer SIZES`. Coroutines and plain
functions, each by itself; of every figure the better one counts."""

import asyncio
import os
import sys
import time

from dbos import DBOS

from bench.peers.dbos_peer import config
from bench.peers.flow_sizes import Rates, Sizes, told

SETTINGS = "one process that starts and runs its workflows; the better of async and sync functions"


@DBOS.step()
async def async_step() -> None: ...


@DBOS.workflow()
async def async_steps(count: int) -> None:
    for _ in range(count):
        await async_step()


@DBOS.workflow()
async def async_child(i: int) -> int:
    return i


@DBOS.workflow()
async def async_chain(count: int) -> None:
    for i in range(count):
        await async_child(i)


@DBOS.step()
def step() -> None: ...


@DBOS.workflow()
def steps(count: int) -> None:
    for _ in range(count):
        step()


@DBOS.workflow()
def child(i: int) -> int:
    return i


@DBOS.workflow()
def chain(count: int) -> None:
    for i in range(count):
        child(i)


async def with_coroutines(sizes: Sizes) -> Rates:
    async def started(count: int) -> None:
        handle = await DBOS.start_workflow_async(async_steps, count)
        await handle.get_result(polling_interval_sec=0.01)

    await async_steps(20)
    began = time.perf_counter()
    await async_steps(sizes.steps)
    one = time.perf_counter()
    await asyncio.gather(*(started(sizes.each) for _ in range(sizes.functions)))
    many = time.perf_counter()
    await async_chain(sizes.chain)
    return _rates(sizes, began, one, many, time.perf_counter())


def with_threads(sizes: Sizes) -> Rates:
    steps(20)
    began = time.perf_counter()
    steps(sizes.steps)
    one = time.perf_counter()
    handles = [DBOS.start_workflow(steps, sizes.each) for _ in range(sizes.functions)]
    for handle in handles:
        handle.get_result(polling_interval_sec=0.01)
    many = time.perf_counter()
    chain(sizes.chain)
    return _rates(sizes, began, one, many, time.perf_counter())


def _rates(sizes: Sizes, began: float, one: float, many: float, chained: float) -> Rates:
    return Rates(
        steps=sizes.steps / (one - began),
        functions=sizes.functions / (many - one),
        children=sizes.chain / (chained - many),
    )


def main(sizes: Sizes) -> Rates:
    DBOS(config=config(os.environ["BENCH_URL"]))
    DBOS.launch()
    threads = with_threads(sizes)
    coroutines = asyncio.run(with_coroutines(sizes))  # the last: it takes the threads along
    return Rates(*(max(pair) for pair in zip(threads, coroutines, strict=True)))


if __name__ == "__main__":
    told("dbos", SETTINGS, main(Sizes.read(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)  # it leaves threads behind
