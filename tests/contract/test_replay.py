"""Retry, replay and discard: an operator's second thoughts."""

import pytest

from holdfast.errors import InvalidInput, UnknownTask
from holdfast.ids import new_id
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    DONE,
    FAILED,
    claim,
    claim_one,
    finish,
    ids_of,
    put,
    put_one,
    retry,
    seconds,
    status_of,
    waiting,
)


async def _dead_letter(store, **fields):
    id = await put_one(store, **fields)
    await finish(store, await claim_one(store), FAILED)
    return id


async def test_a_dead_letter_gets_a_new_life(store):
    id = await _dead_letter(store, max_tries=2)
    assert await store.retry([id]) == {id}
    task = await store.get(id)
    assert (task.status, task.try_count, task.finished_at) == (TaskStatus.PENDING, 0, None)
    assert await store.ending(id) is None
    claimed = await claim_one(store)
    assert (claimed.tries, claimed.lease.fence) == (1, 2)
    await finish(store, claimed, retry())
    assert await status_of(store, id) is TaskStatus.PENDING


async def test_the_former_life_stays_in_the_history(store):
    id = await _dead_letter(store)
    events = await store.events()
    await store.retry([id])
    assert await store.events() == events
    (attempt,) = await store.attempts(id)
    assert (attempt.fence, attempt.ended, attempt.by) == (1, "failed", "holder")
    await finish(store, await claim_one(store), DONE)
    assert [a.ended for a in await store.attempts(id)] == ["failed", "done"]
    assert [e.kind for e in await store.events()] == ["failed", "done"]


async def test_a_cancelled_task_gets_a_new_life(store):
    id = await put_one(store)
    await store.cancel([id])
    assert await store.retry([id]) == {id}
    claimed = await claim_one(store)
    assert (claimed.lease.task, claimed.cancel_requested) == (id, False)
    await finish(store, claimed, retry())
    assert await status_of(store, id) is TaskStatus.PENDING


async def test_an_expired_task_gets_a_new_life_without_an_end(store, clock):
    id = await put_one(store, expires=seconds(5))
    await clock.advance(6)
    await store.expire()
    assert await store.retry([id]) == {id}
    assert (await claim_one(store)).expired is False
    await clock.advance(100)
    assert await store.expire() == []


async def test_a_delayed_task_goes_ahead(store):
    first = await put_one(store)
    delayed = await put_one(store, delay=seconds(600))
    assert await store.retry([delayed]) == {delayed}
    assert ids_of(await claim(store)) == [first, delayed]


async def test_a_task_between_two_tries_goes_ahead(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), retry(600))
    assert await store.retry([id]) == {id}
    assert (await claim_one(store)).tries == 2


async def test_what_runs_waits_or_is_done_is_left_alone(store, dump):
    ids = await put(store, 3)
    running, wait, done = await claim(store)
    await finish(store, wait, waiting())
    await finish(store, done)
    await put_one(store)
    before = await dump()
    assert await store.retry([*ids, new_id()]) == frozenset()
    assert await dump() == before
    assert running.lease.task == ids[0]


async def test_a_replay_that_is_asked_again_moves_nothing_more(store, dump):
    id = await _dead_letter(store)
    await store.retry([id])
    before = await dump()
    assert await store.retry([id]) == frozenset()
    assert await dump() == before


async def test_many_dead_letters_are_replayed_at_once(store):
    ids = await put(store, 20)
    await finish(store, await claim(store), FAILED)
    assert await store.retry(ids) == set(ids)
    assert sorted(ids_of(await claim(store))) == sorted(ids)


async def test_a_task_with_a_key_gets_a_new_life(store):
    id = await _dead_letter(store, key="order-7")
    assert await store.retry([id]) == {id}
    assert await put_one(store, key="order-7") == id


async def test_one_call_replays_a_bounded_number(store):
    with pytest.raises(InvalidInput, match="10,000"):
        await store.retry([new_id()] * 10_001)


# ── discard ──────────────────────────────────────────────────────────────────────────────────


async def test_a_discarded_dead_letter_is_gone_for_good(store, keeper):
    id = await _dead_letter(store, key="order-7", expires=seconds(600))
    assert await store.discard([id]) == {id}
    with pytest.raises(UnknownTask):
        await store.get(id)
    with pytest.raises(UnknownTask):
        await store.ending(id)
    left = {t for t, rows in (await keeper.dump()).items() if keeper.shown(id) in str(rows)}
    assert left == set()


async def test_only_dead_letters_are_discarded(store, dump):
    ids = await put(store, 3)
    done, running, cancelled = await claim(store)
    await finish(store, done)
    await store.cancel([cancelled.lease.task])
    pending = await put_one(store)
    before = await dump()
    assert await store.discard([*ids, pending, new_id()]) == frozenset()
    assert await dump() == before
    await finish(store, [running, cancelled])


async def test_a_dead_letter_that_its_parent_still_needs_is_kept(store):
    parent = await put_one(store)
    held = await claim_one(store)
    child = await _dead_letter(store, parent=parent)
    assert await store.discard([child]) == frozenset()
    await finish(store, held)
    assert await store.discard([child]) == {child}


async def test_discarding_twice_is_discarding_once(store):
    id = await _dead_letter(store)
    await store.discard([id])
    assert await store.discard([id]) == frozenset()


async def test_a_new_life_is_not_ended_by_the_expiry_of_the_former(store, clock):
    id = await put_one(store, expires=seconds(5))
    await store.cancel([id])
    await store.retry([id])
    await clock.advance(10)
    assert await store.expire() == []
    assert (await claim_one(store)).lease.task == id


async def test_what_is_parked_goes_ahead_and_what_waits_does_not(store):
    parked, waits = await put(store, 2)
    for claimed in await claim(store, 2):
        reason = "parked: mend the code" if claimed.lease.task == parked else "sleeps"
        await finish(store, claimed, waiting(reason=reason, wakes=1_000_000_000))
    await store.send_signal(parked, new_id(), "go", b"1")  # it wakes nobody who is parked
    assert await store.sweep_wakes() == 0
    assert await status_of(store, parked) is TaskStatus.WAITING
    assert await store.retry([parked, waits]) == {parked}
    assert ids_of(await claim(store)) == [parked]
    assert await status_of(store, waits) is TaskStatus.WAITING
