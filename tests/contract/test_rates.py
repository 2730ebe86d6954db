"""Rates: never more than so many starts in any span of time, wherever the span begins."""

import pytest

from holdfast.tasks.limits import Limit, Rate
from tests.contract.acts import TYPE, ask, claim, finish, put, put_one


@pytest.mark.parametrize(
    ("rate", "steps"),
    [
        (Rate(count=10, period=60.0, burst=4), (0.5, 3.1, 7.7)),
        (Rate(count=3, period=1.0, burst=3), (0.05, 0.21)),
        (Rate(count=5, period=10.0, burst=1), (1.9, 0.1, 2.0)),
    ],
    ids=lambda value: f"{value.count} in {value.period:g} s" if isinstance(value, Rate) else "",
)
async def test_no_span_of_time_sees_more_starts_than_the_rate(store, clock, rate, steps):
    await put(store, 150)
    await store.limit("type", TYPE, Limit(rate=rate))
    now, starts = 0.0, []
    for step in range(90):
        starts += [now] * len(await claim(store, 20))
        now += steps[step % len(steps)]
        await clock.advance(steps[step % len(steps)])
    for first, one_more in zip(starts, starts[rate.count :], strict=False):
        assert one_more - first >= rate.period - 1e-3
    # Nor is anything held back for longer than the rate asks.
    assert len(starts) >= min(150, int((now - 2 * max(steps)) / (rate.interval + max(steps))))


async def test_a_burst_starts_at_once_and_the_rest_one_by_one(store, clock):
    rate = Rate(count=10, period=60.0, burst=4)
    await put(store, 10)
    await store.limit("type", TYPE, Limit(rate=rate))
    assert len(await claim(store)) == 4
    assert await claim(store) == []
    await clock.advance(rate.interval + 0.001)
    assert len(await claim(store)) == 1
    await clock.advance(rate.interval * 2 + 0.001)
    assert len(await claim(store)) == 2


async def test_an_unused_rate_saves_up_no_more_than_its_burst(store, clock):
    await put(store, 20)
    await store.limit("type", TYPE, Limit(rate=Rate(count=10, period=60.0, burst=4)))
    assert len(await claim(store)) == 4
    await clock.advance(3600)
    assert len(await claim(store)) == 4


async def test_the_answer_says_when_a_rate_opens(store, clock):
    rate = Rate(count=6, period=60.0, burst=1)
    await put(store, 3)
    await store.limit("type", TYPE, Limit(rate=rate))
    assert len(await claim(store)) == 1
    answer = await ask(store)
    assert (answer.tasks, answer.full) == ([], True)
    assert answer.next_due is not None
    assert answer.next_due == pytest.approx(rate.interval, abs=0.01)
    await clock.advance(answer.next_due + 0.001)
    assert len(await claim(store)) == 1


async def test_a_finished_task_gives_its_start_not_back(store):
    await put(store, 5)
    await store.limit("type", TYPE, Limit(rate=Rate(count=2, period=60.0, burst=2)))
    await finish(store, await claim(store))
    assert await claim(store) == []


async def test_a_queues_rate_is_shared_by_its_functions(store):
    await put(store, 5, "job:a", queue="q")
    await put(store, 5, "job:b", queue="q")
    await store.limit("queue", "q", Limit(rate=Rate(count=3, period=60.0, burst=3)))
    assert len(await claim(store)) == 3


async def test_rate_and_number_hold_together(store, clock):
    await put(store, 20)
    await store.limit("type", TYPE, Limit(max_running=2, rate=Rate(count=3, period=60.0, burst=3)))
    first = await claim(store)
    assert len(first) == 2
    await finish(store, first)
    second = await claim(store)
    assert len(second) == 1
    await finish(store, second)
    await clock.advance(3600)
    assert len(await claim(store)) == 2


async def test_a_lifted_rate_is_gone(store):
    await put(store, 9)
    await store.limit("type", TYPE, Limit(rate=Rate(count=1, period=3600.0, burst=1)))
    assert len(await claim(store)) == 1
    await store.limit("type", TYPE, Limit())
    assert len(await claim(store)) == 8


async def test_a_closed_rate_does_not_hold_up_the_lanes_beside_it(store):
    await put(store, 3, "job:slow", priority=9)
    await store.limit("type", "job:slow", Limit(rate=Rate(count=1, period=3600.0, burst=1)))
    await claim(store, 1)
    quick = await put_one(store, "job:quick")
    assert [c.lease.task for c in await claim(store)] == [quick]


async def test_a_raised_rate_does_not_wait_for_what_the_old_one_owes(store, clock):
    await put(store, 5)
    await store.limit("type", TYPE, Limit(rate=Rate(count=2, period=3600.0, burst=2)))
    assert len(await claim(store)) == 2
    await store.limit("type", TYPE, Limit(rate=Rate(count=10, period=1.0, burst=1)))
    await clock.advance(0.11)
    assert len(await claim(store)) == 1


async def test_a_rate_opens_in_time_after_the_clock_was_set_back(store, clock):
    await put(store, 5)
    await store.limit("type", TYPE, Limit(rate=Rate(count=6, period=60.0, burst=1)))
    assert len(await claim(store)) == 1
    await clock.advance(-3600)
    answer = await ask(store)
    assert answer.tasks == []
    assert answer.next_due == pytest.approx(10.0, abs=0.1)
    await clock.advance(10.1)
    assert len(await claim(store)) == 1
