"""Settle: what follows from an attempt's end, written once, by whoever holds the lease."""

import pytest

from holdfast.ids import new_grant, new_id
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Failure, Lease, TaskStatus
from tests.contract.acts import (
    BOOM,
    CANCELLED,
    DONE,
    FAILED,
    HANDED_BACK,
    ask,
    claim,
    claim_one,
    finish,
    ids_of,
    put,
    put_one,
    retry,
    seconds,
    snoozed,
    status_of,
    waiting,
)

OPEN = [retry(), snoozed(60), HANDED_BACK, waiting(60)]  # after these the task goes on
ALL = [DONE, FAILED, CANCELLED, *OPEN]


def name(settlement: Settlement) -> str:
    return settlement.verdict.value


async def test_a_done_task_keeps_its_result(store, clock):
    id = await put_one(store)
    claimed = await claim_one(store)
    await clock.advance(5)
    await finish(store, claimed, Settlement(verdict=Verdict.DONE, result=b'{"paid":\x00}'))
    ending = await store.ending(id)
    assert (ending.status, ending.result, ending.failure) == (
        TaskStatus.DONE,
        b'{"paid":\x00}',
        None,
    )
    task = await store.get(id)
    assert (task.status, task.try_count) == (TaskStatus.DONE, 1)
    assert task.finished_at - task.started_at == seconds(5)
    assert (task.locked_by, task.lease_timeout, task.last_error) == (None, None, None)


async def test_a_task_that_has_not_ended_has_no_ending(store):
    id = await put_one(store)
    assert await store.ending(id) is None
    await claim_one(store)
    assert await store.ending(id) is None


async def test_a_failed_task_keeps_its_error(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    ending = await store.ending(id)
    assert (ending.status, ending.failure) == (TaskStatus.FAILED, BOOM)
    assert (await store.get(id)).last_error == "it broke"


async def test_errors_that_no_database_can_hold_are_made_plain(store):
    id = await put_one(store)
    evil = Failure(type="Bad\0Type", message="half \ud800 pair, NUL \0, " + "x" * 100_000)
    await finish(store, await claim_one(store), Settlement(verdict=Verdict.FAILED, failure=evil))
    failure = (await store.ending(id)).failure
    assert len(failure.message) == 4000
    assert "\0" not in failure.type + failure.message


async def test_a_cancelled_task_is_cancelled(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), CANCELLED)
    assert (await store.ending(id)).status is TaskStatus.CANCELLED


async def test_a_retried_task_waits_for_its_time_and_is_charged(store, clock):
    id = await put_one(store)
    await finish(store, await claim_one(store), retry(30))
    task = await store.get(id)
    assert (task.status, task.try_count, task.last_error) == (TaskStatus.PENDING, 1, "it broke")
    await clock.advance(29)
    assert await claim(store) == []
    assert (await ask(store)).next_due == pytest.approx(1, abs=0.01)
    await clock.advance(2)
    again = await claim_one(store)
    assert (again.tries, again.lease.fence) == (2, 2)


async def test_a_retry_that_names_no_delay_is_due_at_once(store):
    await put_one(store)
    await finish(store, await claim_one(store), Settlement(verdict=Verdict.RETRY))
    assert (await claim_one(store)).tries == 2


async def test_a_snoozed_task_gets_its_attempt_back(store, clock):
    id = await put_one(store, max_tries=1)
    for fence in (1, 2, 3):
        claimed = await claim_one(store)
        assert (claimed.tries, claimed.lease.fence) == (1, fence)
        await finish(store, claimed, snoozed(10))
        assert (await store.get(id)).try_count == 0
        assert await claim(store) == []
        await clock.advance(11)


async def test_a_task_that_was_handed_back_keeps_its_place_and_its_attempt(store):
    ids = await put(store, 3)
    claimed = await claim(store, 2)
    await finish(store, list(reversed(claimed)), HANDED_BACK)
    again = await claim(store)
    assert ids_of(again) == ids
    assert [(c.tries, c.lease.fence) for c in again] == [(1, 2), (1, 2), (1, 1)]


async def test_a_waiting_task_holds_nothing_and_says_why_it_waits(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), waiting(reason="signal approved"))
    task = await store.get(id)
    assert (task.status, task.reason, task.try_count) == (TaskStatus.WAITING, "signal approved", 0)
    assert (task.run_at, task.locked_by) == (None, None)
    assert await claim(store) == []


async def test_a_waiting_task_goes_on_when_its_timer_is_due(store, clock):
    id = await put_one(store)
    await finish(store, await claim_one(store), waiting(timer=60))
    await clock.advance(59)
    assert await claim(store) == []
    await clock.advance(2)
    assert ids_of(await claim(store)) == [id]


async def test_the_fence_only_grows(store, clock):
    id = await put_one(store, max_tries=20)
    fences = []
    for end in (retry(), snoozed(1), HANDED_BACK, waiting(timer=1), retry(), FAILED):
        claimed = await claim_one(store)
        fences.append(claimed.lease.fence)
        await finish(store, claimed, end)
        await clock.advance(2)
    await store.retry([id])
    fences.append((await claim_one(store)).lease.fence)
    await clock.advance(61)
    await store.recover()
    fences.append((await claim_one(store)).lease.fence)
    assert fences == [1, 2, 3, 4, 5, 6, 7, 8]


# ── what only the database can know ──────────────────────────────────────────────────────────


async def test_a_retry_with_no_tries_left_ends_among_the_dead_letters(store):
    id = await put_one(store, max_tries=2)
    for _ in range(2):
        await finish(store, await claim_one(store), retry())
    ending = await store.ending(id)
    assert (ending.status, ending.failure) == (TaskStatus.FAILED, BOOM)
    assert (await store.get(id)).try_count == 2


@pytest.mark.parametrize("tries", [1, 2])
async def test_a_task_that_says_nothing_has_the_workers_default_of_tries(store, tries):
    id = await put_one(store)
    for _ in range(tries):
        assert await status_of(store, id) is TaskStatus.PENDING
        claimed = await claim_one(store)
        assert await store.settle([(claimed.lease, retry())], default_tries=tries) == frozenset()
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_given_back_attempts_use_up_no_tries(store, clock):
    id = await put_one(store, max_tries=1)
    for end in [HANDED_BACK, snoozed(1), waiting(timer=1)] * 2:
        await finish(store, await claim_one(store), end)
        await clock.advance(2)
    await finish(store, await claim_one(store), retry())
    assert await status_of(store, id) is TaskStatus.FAILED


@pytest.mark.parametrize("end", OPEN, ids=name)
async def test_a_cancel_is_not_overtaken(store, end):
    id = await put_one(store)
    claimed = await claim_one(store)
    assert await store.cancel([id]) == {id: "requested"}
    await finish(store, claimed, end)
    assert await status_of(store, id) is TaskStatus.CANCELLED


@pytest.mark.parametrize("end", [DONE, FAILED], ids=name)
async def test_an_end_that_was_reached_wins_over_a_cancel(store, end):
    id = await put_one(store)
    claimed = await claim_one(store)
    await store.cancel([id])
    await finish(store, claimed, end)
    assert (await status_of(store, id)).value == end.verdict.value


@pytest.mark.parametrize("end", OPEN, ids=name)
async def test_an_expired_task_is_not_started_again(store, clock, end):
    id = await put_one(store, expires=seconds(30))
    claimed = await claim_one(store)
    await clock.advance(31)
    await finish(store, claimed, end)
    ending = await store.ending(id)
    assert (ending.status, ending.failure.type) == (TaskStatus.FAILED, "Expired")


async def test_a_task_that_finished_after_its_expiry_is_done(store, clock):
    id = await put_one(store, expires=seconds(30))
    claimed = await claim_one(store)
    await clock.advance(31)
    await finish(store, claimed)
    assert await status_of(store, id) is TaskStatus.DONE


# ── batches ──────────────────────────────────────────────────────────────────────────────────


async def test_a_batch_may_mix_all_verdicts(store):
    ids = await put(store, len(ALL))
    claimed = await claim(store)
    pairs = [(c.lease, s) for c, s in zip(claimed, ALL, strict=True)]
    assert await store.settle(pairs) == frozenset()
    assert [(await status_of(store, id)).value for id in ids] == [
        "done",
        "failed",
        "cancelled",
        "pending",
        "pending",
        "pending",
        "waiting",
    ]


async def test_a_batch_may_hold_leases_of_many_claims(store):
    await put(store, 6)
    held = [await claim_one(store) for _ in range(6)]
    await finish(store, held)
    assert await store.leases() == []


async def test_many_are_settled_at_once(store):
    ids = await put(store, 500)
    await finish(store, await claim(store, 500))
    events = await store.events(limit=1000)
    assert sorted(e.task for e in events) == sorted(ids)


@pytest.mark.parametrize("end", [DONE, FAILED], ids=name)
async def test_a_lost_lease_in_a_batch_does_not_refuse_the_others(store, clock, end):
    lost, kept = await put(store, 2)
    first, second = await claim(store)
    await clock.advance(50)
    await store.renew([second.lease], seconds(60))
    await clock.advance(20)
    await store.recover()
    assert await store.settle([(first.lease, end), (second.lease, end)]) == {lost}
    assert await status_of(store, lost) is TaskStatus.PENDING
    assert (await status_of(store, kept)).value == end.verdict.value


async def test_the_same_lease_twice_in_a_batch_ends_once(store):
    id = await put_one(store)
    claimed = await claim_one(store)
    assert await store.settle([(claimed.lease, DONE), (claimed.lease, DONE)]) == frozenset()
    assert len(await store.attempts(id)) == 1


async def test_nothing_to_settle_is_nothing_done(store, dump):
    before = await dump()
    assert await store.settle([]) == frozenset()
    assert await dump() == before


# ── asked again, or too late ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ALL, ids=name)
async def test_the_same_settle_again_is_accepted_and_writes_nothing(store, dump, end):
    await put(store, 2)
    claimed = await claim(store)
    await finish(store, claimed, end)
    before = await dump()
    await finish(store, claimed, end)
    assert await dump() == before


async def test_a_settle_again_is_accepted_when_the_task_was_claimed_anew(store, dump):
    await put_one(store)
    first = await claim_one(store)
    await finish(store, first, retry())
    await claim_one(store)
    before = await dump()
    await finish(store, first, retry())
    assert await dump() == before


async def test_a_settle_again_is_accepted_in_a_batch_with_new_ones(store):
    await put(store, 2)
    first, second = await claim(store)
    await finish(store, first)
    await finish(store, [first, second])
    assert await store.leases() == []


async def test_work_that_finished_after_its_lease_lapsed_is_taken_while_nobody_took_it_back(
    store, clock
):
    id = await put_one(store)
    claimed = await claim_one(store)
    await clock.advance(1000)
    await finish(store, claimed)
    assert await status_of(store, id) is TaskStatus.DONE


@pytest.mark.parametrize("end", ALL, ids=name)
async def test_a_settle_after_recovery_is_refused_and_on_record(store, clock, end):
    id = await put_one(store)
    claimed = await claim_one(store)
    await clock.advance(61)
    await store.recover()
    assert await store.settle([(claimed.lease, end)]) == {id}
    assert await status_of(store, id) is TaskStatus.PENDING
    lost, refused = await store.events()
    assert (lost.kind, lost.by, lost.fence) == ("lost", "recovery", 1)
    assert (refused.kind, refused.verb, refused.task, refused.fence) == ("refused", "settle", id, 1)


async def test_a_zombie_does_not_hear_that_recovery_accepted_its_work(store, clock):
    id = await put_one(store, max_tries=1)
    claimed = await claim_one(store)
    await clock.advance(61)
    assert [r.status for r in await store.recover()] == [TaskStatus.FAILED]
    assert await store.settle([(claimed.lease, FAILED)]) == {id}


async def test_a_lease_of_no_task_at_all_is_refused(store, dump):
    before = await dump()
    nobody = Lease(new_id(), new_grant(), 1)
    assert await store.settle([(nobody, DONE)]) == {nobody.task}
    assert await dump() == before
