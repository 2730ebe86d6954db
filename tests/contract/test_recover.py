"""Recover: what a dead worker held goes back, through the same door, by anybody at any time."""

import asyncio

import pytest

from holdfast.stores.sql import SqlStore
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    DONE,
    MINUTE,
    OTHER,
    WORKER,
    claim,
    claim_one,
    finish,
    ids_of,
    put,
    put_one,
    retry,
    seconds,
    status_of,
)


async def test_a_lapsed_lease_is_taken_back(store, clock):
    id = await put_one(store)
    claimed = await claim_one(store)
    await clock.advance(65)
    (recovered,) = await store.recover()
    assert (recovered.lease, recovered.worker) == (claimed.lease, WORKER)
    assert recovered.status is TaskStatus.PENDING
    assert recovered.late == pytest.approx(5, abs=0.01)
    assert await status_of(store, id) is TaskStatus.PENDING
    assert await store.leases() == []


async def test_a_lease_is_not_taken_back_before_its_end(store, clock, dump):
    await put_one(store)
    await claim_one(store)
    await clock.advance(59.9)
    before = await dump()
    assert await store.recover() == []
    assert await dump() == before


async def test_a_recovered_task_goes_on_at_once_whatever_its_policy(store, clock):
    id = await put_one(store, retry=RetryPolicy(initial_delay=600.0))
    await claim_one(store)
    await clock.advance(61)
    await store.recover()
    again = await claim_one(store)
    assert (again.lease.task, again.tries, again.lease.fence) == (id, 2, 2)


async def test_a_recovered_task_keeps_its_place(store, clock):
    ids = await put(store, 4)
    await claim(store, 2)
    await clock.advance(61)
    await store.recover()
    assert ids_of(await claim(store)) == ids


async def test_one_pass_is_bounded(store, clock):
    await put(store, 5)
    await claim(store)
    await clock.advance(61)
    assert [len(await store.recover(2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_the_history_says_who_lost_it(store, clock):
    id = await put_one(store)
    await claim_one(store)
    await clock.advance(61)
    await store.recover()
    (attempt,) = await store.attempts(id)
    assert (attempt.ended, attempt.by, attempt.worker) == ("lost", "recovery", WORKER)
    assert attempt.failure.type == "WorkerLost"
    assert attempt.ended_at - attempt.started_at == seconds(61)


async def test_many_recoverers_at_once_take_each_lease_once(store, keeper, clock):
    ids = await put(store, 60)
    for n in range(60):
        await claim(store, 1, worker=n)
    await clock.advance(61)
    answers = await asyncio.gather(*(keeper.store().recover(25) for _ in range(6)))
    answers += [await store.recover()]
    assert sorted(r.lease.task for found in answers for r in found) == sorted(ids)
    assert [len(await store.attempts(id)) for id in ids] == [1] * 60


class Meanwhile:
    """A driver that lets something happen before one verb."""

    def __init__(self, driver, verb, act) -> None:
        self._driver, self._verb, self._act = driver, verb, act

    async def call(self, verb, /, **parameters):
        if verb == self._verb:
            await self._act()
        return await self._driver.call(verb, **parameters)

    def __getattr__(self, name):
        return getattr(self._driver, name)


async def test_a_lease_that_was_renewed_in_between_is_not_taken(store, keeper, clock):
    id = await put_one(store)
    claimed = await claim_one(store)
    await clock.advance(61)

    async def renew() -> None:
        assert (await store.renew([claimed.lease], MINUTE)).lost == frozenset()

    assert await SqlStore(Meanwhile(keeper.driver, "settle", renew)).recover() == []
    assert await status_of(store, id) is TaskStatus.RUNNING
    await finish(store, claimed)


async def test_a_task_that_was_settled_in_between_is_not_revived(store, keeper, clock):
    id = await put_one(store)
    claimed = await claim_one(store)
    await clock.advance(61)

    async def settle() -> None:
        await finish(store, claimed, DONE)

    assert await SqlStore(Meanwhile(keeper.driver, "settle", settle)).recover() == []
    assert await status_of(store, id) is TaskStatus.DONE


# ── the same door ────────────────────────────────────────────────────────────────────────────


async def test_a_task_that_kills_its_workers_ends_among_the_dead_letters(store, clock):
    id = await put_one(store, max_tries=3)
    statuses = []
    for worker in (1, 2, 3):
        await claim_one(store, worker=worker)
        await clock.advance(61)
        statuses += [recovered.status for recovered in await store.recover()]
    assert statuses == [TaskStatus.PENDING, TaskStatus.PENDING, TaskStatus.FAILED]
    ending = await store.ending(id)
    assert (ending.status, ending.failure.type) == (TaskStatus.FAILED, "WorkerLost")
    assert [(e.kind, e.by) for e in await store.events()] == [
        ("lost", "recovery"),
        ("lost", "recovery"),
        ("failed", "recovery"),
    ]


async def test_a_task_that_says_nothing_has_the_recoverers_default_of_tries(store, clock):
    await put_one(store)
    await claim_one(store)
    await clock.advance(61)
    assert [r.status for r in await store.recover(default_tries=1)] == [TaskStatus.FAILED]


async def test_a_cancelled_task_is_not_revived(store, clock):
    id = await put_one(store)
    await claim_one(store)
    assert await store.cancel([id]) == {id: "requested"}
    await clock.advance(61)
    assert [r.status for r in await store.recover()] == [TaskStatus.CANCELLED]
    assert await status_of(store, id) is TaskStatus.CANCELLED


async def test_an_expired_task_is_not_revived(store, clock):
    id = await put_one(store, expires=seconds(30))
    await claim_one(store)
    await clock.advance(61)
    assert [r.status for r in await store.recover()] == [TaskStatus.FAILED]
    assert (await store.ending(id)).failure.type == "Expired"


# ── in company ───────────────────────────────────────────────────────────────────────────────


async def test_tasks_lost_in_company_get_their_attempt_back_and_run_alone(store, clock):
    ids = await put(store, 3, max_tries=1)
    await claim(store)
    await clock.advance(61)
    assert {r.status for r in await store.recover()} == {TaskStatus.PENDING}
    assert [(await store.get(id)).try_count for id in ids] == [0, 0, 0]
    again = await claim(store)
    assert [(c.tries, c.alone, c.lease.fence) for c in again] == [(1, True, 2)] * 3


async def test_a_task_lost_by_itself_pays_and_is_not_marked(store, clock):
    await put_one(store)
    await claim_one(store)
    await clock.advance(61)
    await store.recover()
    again = await claim_one(store)
    assert (again.tries, again.alone) == (2, False)


async def test_an_attempt_is_given_back_once(store, clock):
    ids = await put(store, 2, max_tries=1)
    await claim(store)
    await clock.advance(61)
    await store.recover()
    await claim(store, worker=OTHER)
    await clock.advance(61)
    assert {r.status for r in await store.recover()} == {TaskStatus.FAILED}
    assert [len(await store.attempts(id)) for id in ids] == [2, 2]


async def test_another_lease_of_the_same_worker_is_company(store, clock):
    short = await put_one(store)
    await claim_one(store)
    await put_one(store)
    await claim_one(store, lease=seconds(600))
    await clock.advance(61)
    await store.recover()
    assert (await store.get(short)).try_count == 0


async def test_a_task_lost_before_by_the_same_worker_is_company(store, clock):
    await put(store, 2)
    await claim_one(store, lease=seconds(30))
    second = (await claim_one(store, lease=seconds(60))).lease.task
    await clock.advance(31)
    await store.recover()
    await clock.advance(31)
    await store.recover()
    assert (await store.get(second)).try_count == 0


async def test_nobody_is_its_own_company(store, clock):
    """The same worker, which lives, loses it again and again."""
    id = await put_one(store)
    for tries in (1, 2):
        await claim_one(store)
        await clock.advance(61)
        await store.recover()
        task = await store.get(id)
        assert task.try_count == tries


async def test_a_lease_of_another_worker_is_no_company(store, clock):
    ids = await put(store, 2)
    await claim_one(store, worker=WORKER)
    await claim_one(store, worker=OTHER)
    await clock.advance(61)
    await store.recover()
    assert [(await store.get(id)).try_count for id in ids] == [1, 1]


async def test_a_task_runs_alone_until_it_ends(store, clock):
    await put(store, 2)
    await claim(store)
    await clock.advance(61)
    await store.recover()
    first, _ = await claim(store)
    await finish(store, first, retry())
    (again,) = await claim(store)
    assert again.alone is True


async def test_a_new_life_begins_in_company(store, clock):
    ids = await put(store, 2, max_tries=1)
    for worker in (WORKER, OTHER):
        await claim(store, worker=worker)
        await clock.advance(61)
        await store.recover()
    await store.retry(ids)
    assert [c.alone for c in await claim(store)] == [False, False]
