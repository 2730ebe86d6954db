"""Cleanup: what ended long ago is forgotten, with all that belongs to it, and nothing else."""

import pytest

from holdfast.answers import Step, WorkerRecord
from holdfast.errors import InvalidInput, UnknownTask
from holdfast.ids import new_id
from holdfast.records import LogLine
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    FAILED,
    OTHER,
    WORKER,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    seconds,
    status_of,
    waiting,
)

HOUR = seconds(3600)


async def test_what_ended_long_ago_is_forgotten(store, clock):
    done, cancelled = await put(store, 2)
    await store.cancel([cancelled])
    await finish(store, await claim_one(store))
    await clock.advance(3601)
    assert await store.cleanup(HOUR) == 2
    for id in (done, cancelled):
        with pytest.raises(UnknownTask):
            await store.get(id)


async def test_what_ended_lately_or_not_at_all_is_kept(store, clock, dump):
    await put(store, 4)
    done, _, late, wait = await claim(store)
    await finish(store, late, retry(9000))
    await finish(store, wait, waiting())
    await put_one(store)
    await clock.advance(3000)
    await finish(store, done)
    await clock.advance(3599)
    before = await dump()
    assert await store.cleanup(HOUR) == 0
    assert await dump() == before


async def test_dead_letters_stay_until_they_are_discarded(store, clock):
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    await clock.advance(10 * 86400)
    assert await store.cleanup(HOUR) == 0
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_dead_letters_may_have_a_retention_of_their_own(store, clock):
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    await clock.advance(7000)
    assert await store.cleanup(HOUR, dead_letters=seconds(7200)) == 0
    await clock.advance(300)
    assert await store.cleanup(HOUR, dead_letters=seconds(7200)) == 1
    with pytest.raises(UnknownTask):
        await store.get(id)


async def test_one_pass_is_bounded(store, clock):
    await put(store, 5)
    await finish(store, await claim(store))
    await clock.advance(3601)
    assert [await store.cleanup(HOUR, batch=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_forgotten_task_leaves_nothing_behind(store, clock, keeper):
    id = await put_one(store, key="order-7", expires=seconds(86400), max_tries=9)
    zombie = (await claim_one(store)).lease
    await clock.advance(61)
    await store.recover()
    await store.renew([zombie], HOUR)
    claimed = await claim_one(store)
    await store.progress(claimed.lease, 50, "half", b"[1]")
    line = LogLine(position=1, level="INFO", logger="job", message="half")
    await store.log(claimed.lease, [line])
    await store.record(claimed.lease, [Step(position=1, name="a", value=b"1")])
    await store.send_signal(id, new_id(), "go", b"1")
    await store.cancel([id])
    await finish(store, claimed)
    kept = await put_one(store)
    await clock.advance(3601)
    assert await store.cleanup(HOUR) == 1
    left = {t for t, rows in (await keeper.dump()).items() if keeper.shown(id) in str(rows)}
    assert left == set()
    assert await store.events() == []
    assert await status_of(store, kept) is TaskStatus.PENDING


async def test_a_child_is_kept_as_long_as_its_parent_lives(store, clock):
    parent = await put_one(store)
    held = await claim_one(store, lease=seconds(90_000))
    child = await put_one(store, parent=parent)
    await finish(store, await claim_one(store))
    await clock.advance(3601)
    assert await store.cleanup(HOUR) == 0
    assert (await store.ending(child)).result == b'"paid"'
    await finish(store, held)
    await clock.advance(3601)
    assert await store.cleanup(HOUR) == 2


async def test_a_child_that_outlives_its_parent_leaves_nothing_behind(store, clock, peek):
    parent = await put_one(store)
    held = await claim_one(store)
    await put(store, 4, "job:child", parent=parent)
    await put(store, 1, "job:child", parent=parent, delay=seconds(7200), expires=seconds(60))
    done, failed, again, _ = await claim(store)
    await finish(store, held, FAILED)
    await store.discard([parent])
    await finish(store, done)
    await finish(store, failed, FAILED)
    await finish(store, again, retry())
    await store.cancel([again.lease.task])
    await clock.advance(7201)
    await store.promote()
    orphans = "select count(*) from wake w where w.id not in (select t.id from task t)"
    assert await peek(orphans) == [(0,)]


async def test_what_a_parent_needs_does_not_hide_what_nobody_needs(store, clock):
    parent = await put_one(store)
    held = await claim_one(store, lease=seconds(90_000))
    for settlement in (FAILED, None):
        await put(store, 3, parent=parent)
        children = await claim(store)
        await finish(store, children, *([settlement] if settlement else []))
    await put(store, 2)
    lone, dead = await claim(store)
    await finish(store, lone)
    await finish(store, dead, FAILED)
    await clock.advance(3601)
    assert sum([await store.cleanup(HOUR, dead_letters=HOUR, batch=2) for _ in range(4)]) == 2
    await finish(store, held)


async def test_workers_that_left_long_ago_are_forgotten(store, clock):
    for id in (WORKER, OTHER, 33):
        await store.register(WorkerRecord(id=id, name=f"w{id}"))
    await put_one(store)
    claimed = await claim_one(store, worker=33, lease=seconds(90_000))
    await store.sign_off(WORKER)
    await store.sign_off(33)
    await clock.advance(3601)
    await store.cleanup(HOUR)
    assert [w.id for w in await store.workers()] == [OTHER, 33]
    await finish(store, claimed)


async def test_workers_are_forgotten_a_day_after_they_left_and_not_before(store, clock):
    for id in (WORKER, OTHER, 33, 44):
        await store.register(WorkerRecord(id=id, name=f"w{id}"))
    await put_one(store)
    claimed = await claim_one(store, worker=44, lease=seconds(3 * 86_400))
    await store.sign_off(WORKER)
    await store.sign_off(44)
    await clock.advance(60)
    await store.beat(WorkerRecord(id=33, name="w33"))
    await store.mark_stale(seconds(30))
    await clock.advance(86_330)
    assert await store.forget_workers() == 0
    await clock.advance(11)
    assert await store.forget_workers() == 2
    assert {w.id: w.status for w in await store.workers()} == {33: "stale", 44: "stopped"}
    await finish(store, claimed)
    assert await store.forget_workers() == 1


async def test_a_bounded_number_of_workers_is_forgotten_at_a_time(store, clock):
    for id in range(1, 6):
        await store.register(WorkerRecord(id=id, name=f"w{id}"))
        await store.sign_off(id)
    await clock.advance(11)
    assert [await store.forget_workers(seconds(10), batch=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_negative_retention_is_refused(store):
    await put_one(store)
    await finish(store, await claim_one(store))
    with pytest.raises(InvalidInput, match="must not be negative"):
        await store.cleanup(seconds(-1))
    with pytest.raises(InvalidInput, match="must not be negative"):
        await store.cleanup(HOUR, dead_letters=seconds(-1))
