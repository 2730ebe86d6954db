"""Waiting for the end of a task that is not one's child: it counts as a wake."""

import pytest

from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    claim,
    claim_one,
    finish,
    ids_of,
    put,
    put_one,
    seconds,
    status_of,
    waiting,
)


async def _scene(store, count: int = 1, **fields):
    """Someone under a lease, and others, which wait in their queue."""
    id = await put_one(store)
    held = await claim_one(store)
    return id, held, await put(store, count, "job:rate", **fields)


async def _leases(store):
    return {claimed.lease.task: claimed for claimed in await claim(store)}


async def _is_put_down(store, id) -> bool:
    return await status_of(store, id) is TaskStatus.WAITING


@pytest.mark.parametrize("how", [DONE, FAILED, CANCELLED], ids=lambda how: how.verdict.value)
async def test_the_end_of_what_is_watched_is_a_wake(store, how):
    id, held, (other,) = await _scene(store)
    await finish(store, held, waiting(watched=[other]))
    assert await store.wake_watchers([other]) == [id]  # it has not ended
    assert await _is_put_down(store, id)
    await finish(store, await claim_one(store), how)
    assert await _is_put_down(store, id)
    assert await store.wake_watchers([other]) == [id]
    assert ids_of(await claim(store)) == [id]


async def test_what_has_ended_before_is_not_missed(store):
    id, held, (other,) = await _scene(store)
    await finish(store, await claim_one(store))
    await finish(store, held, waiting(watched=[other]))
    assert ids_of(await claim(store)) == [id]


async def test_whoever_watches_hears_of_it_and_nobody_else(store):
    id, held, others = await _scene(store, 3)
    await finish(store, held, waiting(watched=others[:2]))
    alone = await put_one(store, "job:alone")
    leases = await _leases(store)
    await finish(store, leases[alone], waiting())
    assert await store.wake_watchers([others[2], alone]) == []
    assert await store.wake_watchers([others[1], others[2]]) == [id]
    for other in others:
        await finish(store, leases[other])
    assert await store.wake_watchers(others) == [id]
    assert ids_of(await claim(store)) == [id]
    assert await store.sweep_wakes() == 0
    assert await _is_put_down(store, alone)


async def test_it_counts_beside_children(store):
    id, held, others = await _scene(store, 2)
    (child,) = await put(store, 1, "job:child", parent=id)
    await finish(store, held, waiting(wakes=3, watched=others))
    leases = await _leases(store)
    for other in (others[0], child):
        await finish(store, leases[other])
        await store.wake_watchers([other])
        assert await store.sweep_wakes() == 0
        assert await _is_put_down(store, id)
    await finish(store, leases[others[1]])
    await store.wake_watchers([others[1]])
    assert ids_of(await claim(store)) == [id]


async def test_one_that_fails_breaks_the_wait_for_many(store):
    id, held, others = await _scene(store, 3)
    await finish(store, held, waiting(wakes=3, watched=others))
    leases = await _leases(store)
    await finish(store, leases[others[1]], FAILED)
    await store.wake_watchers([others[1]])
    assert await status_of(store, id) is TaskStatus.PENDING


async def test_the_sweep_finds_who_was_not_told(store):
    id, held, (other,) = await _scene(store)
    await finish(store, held, waiting(watched=[other]))
    assert await store.sweep_wakes() == 0
    await finish(store, await claim_one(store))
    assert await _is_put_down(store, id)
    assert await store.sweep_wakes() == 1
    assert ids_of(await claim(store)) == [id]


async def test_who_was_woken_watches_no_more(store):
    id, held, (other,) = await _scene(store)
    await finish(store, held, waiting(watched=[other]))
    await finish(store, await claim_one(store))
    await store.wake_watchers([other])
    await finish(store, await claim_one(store), waiting())
    assert await store.wake_watchers([other]) == []
    assert await store.sweep_wakes() == 0
    assert await _is_put_down(store, id)


async def test_a_new_life_of_what_is_watched_is_waited_for(store):
    id, held, (other,) = await _scene(store)
    await finish(store, held, waiting(watched=[other]))
    await finish(store, await claim_one(store), FAILED)
    await store.retry([other])
    assert await store.wake_watchers([other]) == [id]
    assert await _is_put_down(store, id)


async def test_what_is_cancelled_tells(store):
    id, held, (other,) = await _scene(store)
    await finish(store, held, waiting(watched=[other]))
    await store.cancel([other])
    assert ids_of(await claim(store)) == [id]


async def test_what_expires_tells(store, clock):
    id, held, (other,) = await _scene(store, expires=seconds(30))
    await finish(store, held, waiting(watched=[other]))
    await clock.advance(31)
    assert [one.task for one in await store.expire()] == [other]
    assert ids_of(await claim(store)) == [id]


async def test_what_is_lost_for_good_tells(store, clock):
    id, held, (other,) = await _scene(store, max_tries=1)
    await finish(store, held, waiting(watched=[other]))
    await claim_one(store)
    await clock.advance(65)
    await store.recover()
    assert ids_of(await claim(store)) == [id]


async def _chain(store):
    """`low` is a child of `middle`, which `high` watches."""
    middle, high, other = await put(store, 3)
    leases = await _leases(store)
    (low,) = await put(store, 1, parent=middle)
    await finish(store, leases[high], waiting(watched=[middle]))
    return low, leases[middle], high, other


async def test_what_waits_for_it_is_waited_for_in_vain(store):
    low, held, high, other = await _chain(store)
    above = [held.lease.task, high, low]
    assert await store.in_vain(low, [*above, other]) == dict.fromkeys(above, "circle")
    assert await store.in_vain(high, [*above, other]) == {high: "circle"}


async def test_what_has_ended_waits_for_nobody(store):
    low, held, high, _ = await _chain(store)
    await finish(store, held)
    assert await store.in_vain(low, [held.lease.task, high, low]) == {low: "circle"}


async def test_what_is_not_there_any_more_is_waited_for_in_vain(store):
    id, held, (other,) = await _scene(store)
    await finish(store, await claim_one(store), FAILED)
    assert await store.in_vain(id, [other]) == {}
    assert await store.discard([other])
    assert await store.in_vain(id, [other]) == {other: "forgotten"}
    await finish(store, held, waiting(watched=[other]))
    assert ids_of(await claim(store)) == [id]


@pytest.mark.parametrize("together", [True, False])
async def test_of_those_that_wait_for_each_other_one_goes_on(store, together):
    ids = await put(store, 3)
    leases = await _leases(store)
    watched = dict(zip(ids, ids[1:] + ids[:1], strict=True))
    settled = [(leases[id].lease, waiting(watched=[watched[id]])) for id in ids]
    for some in [settled] if together else [[one] for one in settled]:
        assert await store.settle(some) == frozenset()
    assert sorted([await status_of(store, id) for id in ids]) == ["pending", "waiting", "waiting"]
    assert await store.sweep_wakes() == 0


async def test_the_sweep_finds_who_waits_for_what_is_not_there_any_more(store):
    id, held, (other,) = await _scene(store)
    await finish(store, held, waiting(watched=[other]))
    await finish(store, await claim_one(store), FAILED)
    assert await store.discard([other])
    assert await _is_put_down(store, id)
    assert await store.sweep_wakes() == 1
    assert ids_of(await claim(store)) == [id]
