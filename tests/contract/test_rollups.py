"""Numbers per minute: every end of an attempt is counted once, whoever counts, whoever writes."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import InvalidInput
from holdfast.records import BOUNDS
from holdfast.tasks.task import Task
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    HANDED_BACK,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    seconds,
    waiting,
)

MINUTE = timedelta(minutes=1)
BUCKETS = len(BOUNDS) + 1


async def _all(store, **rest):
    """The whole history as one point."""
    start, end = datetime(1970, 1, 1, tzinfo=UTC), datetime(2150, 1, 1, tzinfo=UTC)
    return await store.rollups(start, end, step=end - start, **rest)


async def _at_a_full_minute(store, clock) -> datetime:
    """So that what follows within a minute is counted in one."""
    task: Task = await store.get(await put_one(store, "job:clock", queue="clock"))
    await clock.advance(60 - task.created_at.timestamp() % 60 + 0.001)
    await store.cancel([task.id])
    await store.roll_up()
    minute: datetime = task.created_at.replace(second=0, microsecond=0) + MINUTE
    return minute


async def test_every_end_is_counted_by_its_kind(store, clock):
    await put(store, 6, max_tries=9)
    done, failed, cancelled, again, back, wait = await claim(store)
    await finish(store, done, DONE)
    await finish(store, failed, FAILED)
    await finish(store, cancelled, CANCELLED)
    await finish(store, again, retry(600))
    await finish(store, back, HANDED_BACK)
    await finish(store, wait, waiting(600))
    await claim_one(store)
    await clock.advance(61)
    await store.recover()
    assert await store.roll_up() == 7
    (found,) = await _all(store)
    assert (found.done, found.failed, found.cancelled, found.retried) == (1, 1, 1, 1)
    assert found.lost == 1
    assert await store.roll_up() == 0
    assert await _all(store) == [found]


async def test_a_task_that_is_lost_for_good_is_lost_and_failed(store, clock):
    await put_one(store, max_tries=1)
    await claim_one(store)
    await clock.advance(61)
    await store.recover()
    await store.roll_up()
    (found,) = await _all(store)
    assert (found.failed, found.lost) == (1, 1)
    assert sum(found.run) == 0, "how long it really ran nobody knows"


async def test_waits_and_runs_fall_into_their_buckets(store, clock):
    await put(store, 2)
    await put_one(store, delay=seconds(2))
    await clock.advance(2.6)
    await store.promote()
    claimed = await claim(store)
    await clock.advance(0.3)
    await finish(store, claimed[:2])
    await clock.advance(10)
    await finish(store, claimed[2:])
    await store.roll_up()
    (found,) = await _all(store)
    assert _buckets(found.wait) == {1.0: 1, 5.0: 2}
    assert _buckets(found.run) == {0.5: 2, 30.0: 1}
    assert found.wait_seconds == pytest.approx(0.6 + 2 * 2.6)
    assert found.run_seconds == pytest.approx(2 * 0.3 + 10.3)


def _buckets(counts) -> dict[float, int]:
    """What is not empty, by the bound that it is shorter than."""
    assert len(counts) == BUCKETS
    return {bound: n for bound, n in zip((*BOUNDS, float("inf")), counts, strict=True) if n}


async def test_a_bound_belongs_to_the_bucket_above_it(store, clock):
    for run in (1.0, 0.999, 4000.0):
        await put_one(store)
        claimed = await claim_one(store, lease=seconds(9000))
        await clock.advance(run)
        await finish(store, claimed)
    await store.roll_up()
    found = await _all(store)
    assert _buckets([sum(n) for n in zip(*(f.run for f in found), strict=True)]) == {
        1.0: 1,
        2.5: 1,
        float("inf"): 1,
    }


async def test_only_the_first_attempt_tells_how_long_a_task_waited(store, clock):
    await put_one(store, max_tries=9)
    await finish(store, await claim_one(store), retry(0))
    await clock.advance(50)
    await finish(store, await claim_one(store))
    await store.roll_up()
    (found,) = await _all(store)
    assert sum(found.wait) == 1
    assert sum(found.run) == 2


async def test_a_time_series_has_a_point_for_every_step_in_which_something_ended(store, clock):
    start = await _at_a_full_minute(store, clock)
    for count in (1, 2, 0, 4):
        await put(store, count)
        if count:
            await finish(store, await claim(store))
        await store.roll_up()
        await clock.advance(60)
    end = start + 4 * MINUTE
    minutes = await store.rollups(start, end, queue="default")
    assert [(r.at, r.done) for r in minutes] == [
        (start, 1),
        (start + MINUTE, 2),
        (start + 3 * MINUTE, 4),
    ]
    inside = await store.rollups(start + MINUTE, end - MINUTE, queue="default")
    assert [r.done for r in inside] == [2]
    wider = await store.rollups(start, end, step=2 * MINUTE, queue="default")
    assert sum(r.done for r in wider) == 7
    assert all(r.at.timestamp() % 120 == 0 for r in wider)
    assert [sum(r.run) for r in wider] == [r.done for r in wider]


async def test_a_time_series_may_be_of_one_queue_type_or_tenant(store):
    await put(store, 1, "job:a", queue="q", tenant="acme")
    await put(store, 2, "job:b", queue="q", tenant="other")
    await put(store, 4, "job:b", queue="r", tenant="acme")
    await finish(store, await claim(store))
    await store.roll_up()

    async def done(**which) -> int:
        return sum(r.done for r in await _all(store, **which))

    assert [await done(queue="q"), await done(queue="r"), await done(queue="s")] == [3, 4, 0]
    assert [await done(type="job:a"), await done(type="job:b")] == [1, 6]
    assert [await done(tenant="acme"), await done(tenant="other")] == [5, 2]
    assert await done(tenant="acme", type="job:b", queue="q") == 0
    assert await done() == 7


async def test_one_pass_is_bounded(store):
    await put(store, 5)
    await finish(store, await claim(store))
    assert [await store.roll_up(batch=2) for _ in range(4)] == [2, 2, 1, 0]
    (found,) = await _all(store)
    assert (found.done, sum(found.wait), sum(found.run)) == (5, 5, 5)


async def test_a_replayed_dead_letter_is_not_counted_again(store):
    await put_one(store)
    claimed = await claim_one(store)
    await finish(store, claimed, FAILED)
    await store.retry([claimed.lease.task])  # before it is counted
    await store.roll_up()
    await finish(store, await claim_one(store), FAILED)
    await store.roll_up()
    await store.retry([claimed.lease.task])  # and after
    assert await store.roll_up() == 0
    await finish(store, await claim_one(store))
    await store.roll_up()
    (found,) = await _all(store)
    assert (found.failed, found.done) == (2, 1)


async def test_what_is_forgotten_before_its_turn_is_counted_all_the_same(store, clock):
    await store.roll_up()
    await put_one(store)
    await finish(store, await claim_one(store))
    await store.roll_up()
    await put(store, 2, max_tries=9)
    again, dead = await claim(store)
    await finish(store, again, retry())
    await finish(store, dead, FAILED)
    assert await store.discard([dead.lease.task]) == {dead.lease.task}
    await finish(store, await claim_one(store))
    await clock.advance(10)
    assert await store.cleanup(seconds(5)) == 2
    while await store.roll_up():
        pass
    (found,) = await _all(store)
    assert (found.done, found.failed, found.retried) == (2, 1, 1)
    assert (sum(found.wait), sum(found.run)) == (3, 4)


async def test_where_nobody_counts_nothing_is_counted_early(store, clock, peek):
    await put_one(store)
    await finish(store, await claim_one(store))
    await peek("delete from reached where name = 'rollup'")
    await clock.advance(10)
    await store.cleanup(seconds(5))
    assert await peek("select count(*) from rollup") == [(0,)]


async def test_the_buckets_are_the_documented_ones(keeper, store, peek):
    if keeper.dialect == "postgres":
        assert await peek("select bounds()") == [(list(BOUNDS),)]


async def test_many_who_forget_while_many_count_lose_nothing(store, keeper):
    ids = await put(store, 100)
    await store.roll_up(1)
    await finish(store, await claim(store, 100), FAILED)

    async def forget(start: int) -> None:
        own = keeper.store()
        for n in range(start, 100, 4):
            await own.discard([ids[n]])

    async def count() -> None:
        own = keeper.store()
        for _ in range(20):
            await own.roll_up(batch=7)

    async with asyncio.timeout(60):
        await asyncio.gather(*(forget(n) for n in range(4)), *(count() for _ in range(3)))
    while await store.roll_up():
        pass
    assert sum(r.failed for r in await _all(store)) == 100


async def test_many_who_count_while_many_write_count_everything_once(store, keeper):
    ids = await put(store, 200)
    working = [True]

    async def write(worker: int) -> None:
        own = keeper.store()
        while claimed := await claim(own, 4, worker=worker):
            await finish(own, claimed[:3], DONE)
            await finish(own, claimed[3:], FAILED)

    async def count() -> None:
        own = keeper.store()
        while await own.roll_up(batch=13) or working:
            await asyncio.sleep(0)  # a store without threads never lets the others run

    async def work() -> None:
        await asyncio.gather(*(write(n) for n in range(3)))
        working.clear()

    async with asyncio.timeout(120):
        await asyncio.gather(work(), *(count() for _ in range(3)))
    while await store.roll_up():
        pass
    found = await _all(store)
    assert sum(r.done + r.failed for r in found) == len(ids)
    assert sum(sum(r.run) for r in found) == len(ids)


async def test_whoever_comes_second_counts_nothing(store, keeper, dump):
    await put(store, 2)
    await finish(store, await claim(store))
    ask = {"after": 0, "upto": 2}
    assert [row[0] for row in await keeper.driver.call("roll_up", **ask)] == [True]
    before = await dump()
    assert [row[0] for row in await keeper.driver.call("roll_up", **ask)] == [False]
    assert await dump() == before


async def test_numbers_are_kept_for_thirty_days(store, clock):
    await put_one(store)
    await finish(store, await claim_one(store))
    await store.roll_up()
    await clock.advance(30 * 86_400 - 61)
    await store.cleanup(seconds(0))
    assert len(await _all(store)) == 1
    await clock.advance(122)
    await store.cleanup(seconds(0))
    assert await _all(store) == []


async def test_questions_that_make_no_sense_are_refused(store):
    now = datetime.now(UTC)
    with pytest.raises(InvalidInput, match="time zone"):
        await store.rollups(now.replace(tzinfo=None), now)
    with pytest.raises(InvalidInput, match="whole minutes"):
        await store.rollups(now - MINUTE, now, step=seconds(90))
    with pytest.raises(InvalidInput, match="larger step"):
        await store.rollups(now - timedelta(days=30), now)
