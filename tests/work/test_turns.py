"""Threads beside a busy event loop get their turn soon."""

import sys

import pytest

from tests.work.bench import Bench


@pytest.mark.parametrize(("before", "meanwhile"), [(0.005, 0.001), (0.0002, 0.0002)])
async def test_turns_are_short_while_a_worker_serves(
    bench: Bench, before: float, meanwhile: float
) -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(before)
    try:
        async with bench.worker(bench.app):
            assert sys.getswitchinterval() == pytest.approx(meanwhile, rel=0.1)
        assert sys.getswitchinterval() == pytest.approx(before, rel=0.1)
    finally:
        sys.setswitchinterval(usual)


async def test_they_stay_short_until_the_last_worker_of_the_process_ends(bench: Bench) -> None:
    usual = sys.getswitchinterval()
    first, leaves_first = await bench.start()
    async with bench.worker():
        leaves_first.request_drain()
        await first
        assert sys.getswitchinterval() == pytest.approx(0.001, rel=0.1)
    assert sys.getswitchinterval() == pytest.approx(usual, rel=0.1)
