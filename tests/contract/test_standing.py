"""Where a task stands and what holds it back, for whoever asks why it does not run."""

import msgspec
import pytest

from holdfast.answers import Gate, WorkerRecord
from holdfast.errors import UnknownTask
from holdfast.ids import new_id
from holdfast.tasks.lane import Lane, Serving
from holdfast.tasks.limits import Limit, Rate
from tests.contract.acts import (
    FAILED,
    MINUTE,
    OTHER,
    TYPE,
    WORKER,
    claim,
    claim_one,
    draft,
    finish,
    ids_of,
    put,
    put_one,
    retry,
    seconds,
    waiting,
)


def _gate(kind="type", name=TYPE, **fields):
    nothing = dict.fromkeys(
        ("max_running", "running", "max_per_key", "running_of_key", "rate_opens")
    )
    return Gate(kind=kind, name=name, **{**nothing, **fields})


async def test_a_task_that_nothing_holds_back_stands_in_its_lane(store):
    lane = Lane(queue="vip", type=TYPE, version="2", tags=("x",), requires=("gpu",), tenant="acme")
    id = await put_one(store, **msgspec.structs.asdict(lane))
    found = await store.standing(id)
    assert (found.task, found.place, found.lane) == (id, "ready", lane)
    assert (found.ahead, found.due, found.gates, found.occupied_by) == (0, None, (), ())
    assert not found.queue_paused
    assert not found.cancel_requested
    assert (found.concurrency_key, found.reason, found.holder, found.lease_left) == (None,) * 4


async def test_who_comes_first_in_the_lane_is_ahead(store):
    first, second = await put(store, 2)
    await put(store, 3, queue="another")
    urgent = await put_one(store, priority=5)
    late = await put_one(store, priority=-5)
    places = {id: (await store.standing(id)).ahead for id in (first, second, urgent, late)}
    assert places == {urgent: 0, first: 1, second: 2, late: 3}


async def test_those_ahead_are_counted_up_to_a_thousand(store):
    ids = await put(store, 1003)
    ahead = [(await store.standing(ids[n])).ahead for n in (998, 999, 1000, 1002)]
    assert ahead == [998, 999, 1000, 1000]
    assert (await store.standing(ids[1002])).place == "ready"


async def test_a_task_whose_time_has_not_come_is_put_off(store, clock):
    id = await put_one(store, delay=MINUTE)
    await clock.advance(20)
    found = await store.standing(id)
    assert (found.place, found.ahead) == ("later", None)
    assert found.due == pytest.approx(40, abs=0.01)
    await clock.advance(41)
    assert (await store.standing(id)).due is None


async def test_a_retry_is_put_off_too(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), retry(after=30))
    found = await store.standing(id)
    assert (found.place, found.holder) == ("later", None)
    assert found.due == pytest.approx(30, abs=0.01)


@pytest.mark.parametrize(("timer", "due"), [(90, pytest.approx(90, abs=0.01)), (None, None)])
async def test_a_function_that_was_put_down_says_what_it_waits_for(store, timer, due):
    id = await put_one(store)
    await finish(store, await claim_one(store), waiting(timer, reason="signal"))
    found = await store.standing(id)
    assert (found.place, found.reason, found.due) == ("waiting", "signal", due)


async def test_a_running_task_names_who_holds_it_and_for_how_long(store, clock):
    await store.register(WorkerRecord(id=WORKER, name="host-a:17"))
    known = await put_one(store)
    await claim_one(store, lease=seconds(40))
    unknown = await put_one(store)
    await claim_one(store, lease=seconds(90), worker=OTHER)
    await clock.advance(50)
    found = await store.standing(known)
    assert (found.place, found.holder, found.ahead) == ("lease", "host-a:17", None)
    assert found.lease_left == pytest.approx(-10, abs=0.01)
    found = await store.standing(unknown)
    assert found.holder == str(OTHER)
    assert found.lease_left == pytest.approx(40, abs=0.01)


async def test_an_ended_task_stands_among_the_outcomes(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    found = await store.standing(id)
    assert (found.place, found.holder, found.lease_left) == ("outcome", None, None)


async def test_a_paused_queue_and_a_request_to_cancel_are_told(store):
    id = await put_one(store, queue="slow")
    other = await put_one(store)
    await claim_one(store, serving=Serving(queues=frozenset({"slow"})))
    await store.pause("slow")
    await store.cancel([id])
    found = await store.standing(id)
    assert (found.queue_paused, found.cancel_requested, found.place) == (True, True, "lease")
    found = await store.standing(other)
    assert (found.queue_paused, found.cancel_requested) == (False, False)
    await store.resume("slow")
    assert not (await store.standing(id)).queue_paused


async def test_a_full_limit_is_told_with_those_who_fill_it(store, clock):
    ids = await put(store, 4)
    await store.limit("type", TYPE, Limit(max_running=2))
    await store.limit("queue", "default", Limit(max_running=50))
    elsewhere = await put_one(store, "job:other")
    first = await claim(store, 1)
    await clock.advance(1)
    running = first + await claim(store, 2)
    assert ids_of(running) == [*ids[:2], elsewhere]
    found = await store.standing(ids[2])
    assert found.gates == (
        _gate(max_running=2, running=2),
        _gate("queue", "default", max_running=50, running=3),
    )
    assert found.occupied_by == tuple(ids[:2])
    assert (found.place, found.ahead) == ("ready", 0)
    assert (await store.standing(ids[0])).occupied_by == (ids[1],)
    await finish(store, running[0])
    found = await store.standing(ids[2])
    assert found.gates[0] == _gate(max_running=2, running=1)
    assert found.occupied_by == ()


async def test_no_more_than_ten_who_fill_a_limit_are_told(store):
    ids = await put(store, 13)
    await store.limit("type", TYPE, Limit(max_running=12))
    await claim(store)
    occupied_by = (await store.standing(ids[12])).occupied_by
    assert len(occupied_by) == len(set(occupied_by)) == 10
    assert set(occupied_by) < set(ids[:12])


async def test_a_full_key_is_told_with_those_who_fill_it(store):
    await store.limit("type", TYPE, Limit(max_per_key=2))
    ids = await put(store, 4, concurrency_key="acme")
    duff = await put(store, 1, concurrency_key="duff")
    free = await put_one(store)
    other_tenant = await put_one(store, concurrency_key="acme", tenant="other")
    running = await claim(store)
    assert set(ids_of(running)) == {*ids[:2], *duff, free, other_tenant}
    found = await store.standing(ids[3])
    assert (found.place, found.ahead, found.concurrency_key) == ("blocked", 1, "acme")
    assert found.gates == (_gate(max_per_key=2, running_of_key=2),)
    assert set(found.occupied_by) == set(ids[:2])
    found = await store.standing(other_tenant)
    assert found.gates == (_gate(max_per_key=2, running_of_key=1),)
    assert found.occupied_by == ()
    assert (await store.standing(free)).gates == (_gate(max_per_key=2),)
    await finish(store, [c for c in running if c.lease.task == ids[0]])
    found = await store.standing(ids[2])
    assert found.gates == (_gate(max_per_key=2, running_of_key=1),)
    assert (found.place, found.ahead, found.occupied_by) == ("blocked", 0, ())


async def test_a_task_that_its_key_let_in_stands_in_its_lane(store):
    await store.limit("type", TYPE, Limit(max_per_key=1))
    ids = await put(store, 2, concurrency_key="acme", priority=-1)
    plain = await put_one(store)
    assert ids_of(await claim(store, 1)) == [plain]
    found = await store.standing(ids[0])
    assert (found.place, found.ahead) == ("ready", 0)
    assert (await store.standing(ids[1])).place == "blocked"


async def test_a_key_is_followed_further_than_a_lane(store):
    ids = await put(store, 1100, concurrency_key="acme")
    found = await store.standing(ids[1050])
    assert (found.place, found.ahead) == ("blocked", 1000)


async def test_a_rate_says_when_it_opens(store, clock):
    rate = Rate(count=6, period=60.0, burst=1)
    ids = await put(store, 2)
    await store.limit("type", TYPE, Limit(rate=rate))
    (gate,) = (await store.standing(ids[1])).gates
    assert gate == _gate()
    assert len(await claim(store)) == 1
    await clock.advance(4)
    (gate,) = (await store.standing(ids[1])).gates
    assert gate == _gate(rate_opens=pytest.approx(6, abs=0.01))
    await clock.advance(7)
    (gate,) = (await store.standing(ids[1])).gates
    assert gate.rate_opens is None


async def test_a_rate_after_the_clock_was_set_back_waits_for_one_start(store, clock):
    ids = await put(store, 2)
    await store.limit("type", TYPE, Limit(rate=Rate(count=6, period=60.0, burst=1)))
    await claim(store)
    await clock.advance(-3600)
    (gate,) = (await store.standing(ids[1])).gates
    assert gate.rate_opens == pytest.approx(10, abs=0.01)


async def test_a_limit_that_was_lifted_is_told_no_more(store):
    id = await put_one(store)
    await store.limit("type", TYPE, Limit(max_running=1, max_per_key=1, rate=Rate.parse("1/m")))
    assert len((await store.standing(id)).gates) == 1
    await store.limit("type", TYPE, Limit())
    assert (await store.standing(id)).gates == ()


async def test_asking_changes_nothing(store, dump):
    await store.limit("type", TYPE, Limit(max_running=1, max_per_key=1))
    ids = await put(store, 3, concurrency_key="acme")
    await finish(store, await claim(store))
    await claim(store)
    before = await dump()
    for id in ids:
        await store.standing(id)
    assert await dump() == before


async def test_an_unknown_task_stands_nowhere(store):
    await store.enqueue([draft()])
    with pytest.raises(UnknownTask):
        await store.standing(new_id())
