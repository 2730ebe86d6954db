"""Bulk work: started once, driven by one process at a time, and stopped when it is cancelled."""

import asyncio

import pytest

from holdfast.errors import InvalidInput
from holdfast.ids import new_grant, new_id
from tests.contract.acts import seconds

MATCH = {"status": "failed", "type": "shop.orders:charge"}


async def _start(store, **fields):
    id = fields.pop("id", None) or new_id()
    await store.start_operation(id, "replay", MATCH, **{"actor": "key:k1", **fields})
    return id


async def test_an_operation_is_read_back(store):
    id = await _start(store, rate=50, matched=7, tenant="acme", reason="the bank is back")
    found = await store.operation(id)
    assert (found.id, found.action, found.filter, found.rate) == (id, "replay", MATCH, 50.0)
    assert (found.state, found.matched, found.done, found.failed) == ("pending", 7, 0, 0)
    assert (found.actor, found.tenant, found.reason) == ("key:k1", "acme", "the bank is back")
    assert (found.position, found.error, found.ended_at) == (None, None, None)
    assert not found.capped
    assert (await store.operation(await _start(store, matched=7, capped=True))).capped
    assert await store.operation(new_id()) is None


async def test_started_twice_is_started_once(store, dump):
    id = await _start(store)
    before = await dump()
    await _start(store, id=id, reason="again")
    assert await dump() == before


async def test_the_newest_are_listed_first(store):
    ids = [await _start(store, tenant=tenant) for tenant in ("a", "b", "a", None)]
    first = await store.operations(limit=2)
    assert [o.id for o in first] == ids[:1:-1]
    assert [o.id for o in await store.operations(before=first[-1].id)] == ids[1::-1]
    assert [o.id for o in await store.operations(tenant="a")] == [ids[2], ids[0]]


async def test_of_many_processes_one_drives_it(store, keeper):
    ids = [await _start(store) for _ in range(3)]
    drivers = [keeper.store() for _ in range(8)]
    asked = await asyncio.gather(*(d.take_operations(new_grant()) for d in drivers))
    assert sorted(o.id for taken in asked for o in taken) == ids
    assert await store.take_operations(new_grant()) == []


async def test_its_driver_moves_it_on_to_its_end(store, clock):
    id, grant = await _start(store), new_grant()
    (taken,) = await store.take_operations(grant)
    assert (taken.id, taken.state, taken.filter) == (id, "running", MATCH)
    assert await store.advance_operation(id, grant, position="p1", done=3, failed=1, matched=9)
    found = await store.operation(id)
    assert (found.position, found.done, found.failed, found.matched) == ("p1", 3, 1, 9)
    assert await store.advance_operation(id, grant, position="p2", done=8, failed=1)
    assert (await store.operation(id)).matched == 9
    await clock.advance(2)
    for _ in range(2):  # also where the first answer was lost
        assert await store.end_operation(id, grant)
    found = await store.operation(id)
    assert (found.state, found.ended_at - found.created_at) == ("done", seconds(2))
    assert not await store.advance_operation(id, grant, position="p3", done=9, failed=1)
    assert await store.take_operations(new_grant()) == []


async def test_one_that_broke_says_why(store):
    id, grant = await _start(store), new_grant()
    await store.take_operations(grant)
    assert await store.end_operation(id, grant, "failed", error="no such queue")
    found = await store.operation(id)
    assert (found.state, found.error) == ("failed", "no such queue")
    assert not await store.end_operation(id, grant, "done")


async def test_a_driver_that_died_is_followed_by_another(store, clock):
    id, dead, heir = await _start(store), new_grant(), new_grant()
    await store.take_operations(dead, lease=seconds(30))
    await clock.advance(20)
    assert await store.advance_operation(
        id, dead, position="p1", done=3, failed=0, lease=seconds(30)
    )
    await clock.advance(29)
    assert await store.take_operations(heir) == []
    await clock.advance(2)
    (taken,) = await store.take_operations(heir)
    assert (taken.position, taken.done) == ("p1", 3)
    assert not await store.advance_operation(id, dead, position="late", done=4, failed=0)
    assert not await store.end_operation(id, dead)
    assert (await store.operation(id)).position == "p1"
    assert await store.advance_operation(id, heir, position="p2", done=5, failed=0)


async def test_whoever_asks_again_after_a_lost_answer_gets_the_same(store):
    id, grant = await _start(store), new_grant()
    for _ in range(2):
        assert [o.id for o in await store.take_operations(grant)] == [id]


async def test_a_clock_that_was_set_back_stops_nothing(store, clock):
    id = await _start(store)
    await store.take_operations(new_grant())
    await clock.advance(-86_400)
    assert [o.id for o in await store.take_operations(new_grant())] == [id]


async def test_a_cancelled_one_stops_at_its_drivers_next_step(store):
    pending, id, grant = await _start(store), await _start(store), new_grant()
    assert await store.cancel_operation(pending)
    assert [o.id for o in await store.take_operations(grant)] == [id]
    assert await store.cancel_operation(id)
    assert not await store.advance_operation(id, grant, position="p", done=1, failed=0)
    assert not await store.end_operation(id, grant)
    assert not await store.cancel_operation(id)
    assert not await store.cancel_operation(new_id())
    assert {o.state for o in await store.operations()} == {"cancelled"}


async def test_what_ended_is_forgotten_after_thirty_days(store, clock):
    open_id, id, grant = await _start(store), await _start(store), new_grant()
    await store.take_operations(grant, limit=2)
    await store.end_operation(id, grant)
    await clock.advance(30 * 86_400 - 1)
    await store.cleanup(seconds(0))
    assert len(await store.operations()) == 2
    await clock.advance(2)
    await store.cleanup(seconds(0))
    assert [o.id for o in await store.operations()] == [open_id]


async def test_what_makes_no_sense_is_refused(store, dump):
    before = await dump()
    with pytest.raises(InvalidInput, match="rate"):
        await _start(store, rate=0)
    with pytest.raises(InvalidInput, match="action"):
        await store.start_operation(new_id(), "a b", {}, actor="ann")
    with pytest.raises(InvalidInput, match="done or failed"):
        await store.end_operation(new_id(), new_grant(), "cancelled")
    with pytest.raises(InvalidInput, match="1 to 1000"):
        await store.operations(limit=0)
    assert await dump() == before
