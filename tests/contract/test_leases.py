"""Leases and workers: renewed by their holder, lost when nobody renews; workers beat."""

from typing import Any

import pytest

from holdfast.answers import Beat, LeaseCount, WorkerRecord
from holdfast.errors import InvalidInput
from holdfast.ids import new_grant, new_id
from holdfast.tasks.task import Lease, TaskStatus
from tests.contract.acts import (
    DONE,
    MINUTE,
    OTHER,
    WORKER,
    ask,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    seconds,
    status_of,
)

ME = WorkerRecord(
    id=WORKER,
    name="host-a:17",
    host="host-a",
    pid=17,
    version="1.2",
    queues=("default",),
    tags=("mail",),
    capabilities=("gpu",),
    tenants=("acme", "default"),
    group_id="mailers",
    types=("shop.orders:charge", "shop.orders:refund@2"),
    priority=-3,
    slots=8,
    tasks_acquired=5_000_000_000,
    tasks_recovered=7,
    poll_interval=0.5,
    loop_lag=0.0125,
    lease=300.0,
)


async def test_a_renewed_lease_is_not_lost(store, clock):
    await put_one(store)
    lease = (await claim_one(store)).lease
    for _ in range(5):
        await clock.advance(50)
        assert (await store.renew([lease], MINUTE)).lost == frozenset()
        assert await store.recover() == []


async def test_a_renewal_counts_from_now(store, clock):
    await put_one(store)
    lease = (await claim_one(store)).lease
    await clock.advance(30)
    await store.renew([lease], seconds(10))
    (view,) = await store.leases()
    assert view.seconds_left == pytest.approx(10, abs=0.01)
    await clock.advance(11)
    assert len(await store.recover()) == 1


async def test_only_the_named_leases_are_renewed(store, clock):
    first, second = await put(store, 2)
    held = {c.lease.task: c.lease for c in await claim(store)}
    await clock.advance(50)
    await store.renew([held[first]], MINUTE)
    await clock.advance(20)
    assert [r.lease.task for r in await store.recover()] == [second]


async def test_leases_of_several_grants_are_renewed_together(store):
    await put(store, 4)
    leases = [(await claim_one(store)).lease for _ in range(4)]
    assert len({lease.grant for lease in leases}) == 4
    assert (await store.renew(leases, MINUTE)).lost == frozenset()


async def test_a_lapsed_lease_that_nobody_took_back_can_be_renewed(store, clock):
    await put_one(store)
    lease = (await claim_one(store)).lease
    await clock.advance(1000)
    assert (await store.renew([lease], MINUTE)).lost == frozenset()
    assert await store.recover() == []


async def test_a_renewal_says_which_leases_are_gone(store, clock):
    await put(store, 3)
    done, lost, kept = [c.lease for c in await claim(store)]
    await clock.advance(50)
    await store.renew([kept, done], MINUTE)
    await clock.advance(20)
    await store.recover()
    unknown = Lease(new_id(), new_grant(), 1)
    assert (await store.renew([kept, lost, unknown], MINUTE)).lost == {lost.task, unknown.task}


async def test_a_refused_renewal_is_on_record(store, clock):
    await put_one(store)
    lease = (await claim_one(store)).lease
    await clock.advance(61)
    await store.recover()
    await store.renew([lease], MINUTE)
    event = (await store.events())[-1]
    assert (event.kind, event.verb, event.task, event.fence) == ("refused", "renew", lease.task, 1)


async def test_a_renewal_tells_what_was_asked_to_cancel(store):
    first, second = await put(store, 2)
    leases = [c.lease for c in await claim(store)]
    assert (await store.renew(leases, MINUTE)).cancel == frozenset()
    assert await store.cancel([second]) == {second: "requested"}
    renewed = await store.renew(leases, MINUTE)
    assert (renewed.cancel, renewed.lost) == ({second}, frozenset())
    assert await status_of(store, first) is TaskStatus.RUNNING


async def test_nothing_to_renew_is_nothing_done(store, dump):
    before = await dump()
    renewed = await store.renew([], MINUTE)
    assert (renewed.lost, renewed.cancel) == (frozenset(), frozenset())
    assert await dump() == before


@pytest.mark.parametrize("length", [seconds(0), seconds(-5), seconds(400 * 86400)], ids=str)
async def test_a_renewal_has_a_sensible_length(store, dump, length):
    await put_one(store)
    lease = (await claim_one(store)).lease
    before = await dump()
    with pytest.raises(InvalidInput, match="lease"):
        await store.renew([lease], length)
    assert await dump() == before


async def test_leases_are_listed_with_what_people_want_to_know(store, clock):
    await store.register(ME)
    id = await put_one(store, queue="vip")
    await claim_one(store, lease=seconds(40))
    await put_one(store, "job:b")
    await claim_one(store, worker=OTHER, lease=seconds(90))
    await clock.advance(50)
    lapsed, valid = await store.leases()
    assert (lapsed.task, lapsed.queue, lapsed.worker, lapsed.worker_name) == (
        id,
        "vip",
        WORKER,
        "host-a:17",
    )
    assert (lapsed.fence, lapsed.tries) == (1, 1)
    assert lapsed.seconds_left == pytest.approx(-10, abs=0.01)
    assert lapsed.lease_timeout - lapsed.started_at == seconds(40)
    assert (valid.type, valid.worker_name) == ("job:b", None)
    assert [view.task for view in await store.leases(lapsed=True)] == [id]
    assert len(await store.leases(limit=1)) == 1
    for name in ("host-a:17", str(WORKER)):
        assert [view.task for view in await store.leases(worker=name, limit=1)] == [id]
    assert await store.leases(worker=str(OTHER), limit=1) == [valid]
    assert await store.leases(worker="nobody") == []
    one, none = LeaseCount(held=1, lapsed=1), LeaseCount(held=1, lapsed=0)
    assert await store.lease_counts() == {WORKER: one, OTHER: none}


async def test_leases_of_one_worker_are_found_among_those_of_all(store):
    for worker in (WORKER, OTHER, WORKER):
        await put_one(store)
        await claim_one(store, worker=worker)
    assert [view.worker for view in await store.leases(worker=str(WORKER))] == [WORKER] * 2
    assert await store.leases(worker="nobody") == []


# ── workers ──────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_is_listed_with_the_leases_that_it_holds_now(store, clock):
    await store.register(ME)
    for length in (40, 90, 90):
        await put_one(store)
        await claim_one(store, lease=seconds(length))
    assert [worker.active for worker in await store.workers()] == [3]
    assert [worker.active for worker in await store.workers(counted=False)] == [0]
    await clock.advance(50)
    assert [worker.active for worker in await store.workers()] == [2]


async def test_a_registered_worker_is_listed_as_it_said(store):
    await store.register(ME)
    (found,) = await store.workers()
    assert found.started_at is not None
    assert found.last_heartbeat == found.started_at
    assert found == WorkerRecord(
        **{
            **{name: getattr(ME, name) for name in ME.__struct_fields__},
            "started_at": found.started_at,
            "last_heartbeat": found.started_at,
        }
    )


async def test_a_beat_moves_the_heartbeat_and_what_the_worker_says_of_itself(store, clock):
    await store.register(ME)
    await clock.advance(30)
    told: dict[str, Any] = {
        "slots": 9,
        "types": ("shop.orders:charge", "shop.orders:void"),
        "tasks_acquired": 5_000_000_001,
        "tasks_recovered": 8,
        "poll_interval": 2.5,
        "loop_lag": 0.25,
    }
    await store.beat(WorkerRecord(id=WORKER, name="host-a:17", **told))
    (found,) = await store.workers()
    assert found.last_heartbeat - found.started_at == seconds(30)
    assert {name: getattr(found, name) for name in told} == told
    assert (found.status, found.capabilities) == ("ready", ("gpu",))


async def test_slots_are_taken_by_the_leases_that_a_worker_holds(store):
    async def active() -> Any:
        (found,) = await store.workers()
        return found.active

    await store.register(ME)
    await put(store, ME.slots + 2)
    first, _ = await claim(store, 2)
    assert await active() == 2, "before it has said anything"
    await finish(store, first, DONE)
    await store.beat(ME)
    assert await active() == 1
    await claim(store, ME.slots - 1)
    assert await active() == ME.slots
    await claim(store, 1)
    assert await active() == ME.slots, "what is claimed ahead takes no slot yet"


async def test_what_several_count_for_a_worker_is_added_up(store):
    far = WorkerRecord(id=OTHER, name="far")
    for count in (2, 0, 3):
        await store.beat(far, acquired=count)
    (found,) = await store.workers()
    assert found.tasks_acquired == 5


async def test_a_beat_registers_a_worker_that_nobody_knows(store):
    assert await store.beat(ME) == Beat(frozenset(), drain=False)
    assert [w.id for w in await store.workers()] == [WORKER]


async def test_a_beat_tells_what_was_asked_to_cancel(store):
    ids = await put(store, 3)
    leases = [c.lease for c in await claim(store)]
    assert (await store.beat(ME, leases)).cancel == frozenset()
    await store.cancel(ids[1:])
    assert (await store.beat(ME, leases)).cancel == {ids[1], ids[2]}
    assert (await store.beat(ME, leases[:1])).cancel == frozenset()


async def test_a_beat_tells_that_the_worker_is_to_drain(store):
    assert not await store.drain(WORKER), "nobody knows it"
    await store.register(ME)
    assert await store.drain(WORKER)
    assert (await store.beat(ME)).drain
    assert (await store.beat(ME)).drain, "also where the answer was lost"
    await store.sign_off(WORKER)
    assert not await store.drain(WORKER)


async def test_a_worker_that_signs_off_is_stopped(store):
    await store.register(ME)
    await store.sign_off(WORKER)
    (found,) = await store.workers()
    assert (found.status, found.active) == ("stopped", 0)


async def test_a_worker_that_was_not_heard_of_is_marked_stale(store, clock):
    await store.register(ME)
    await store.register(WorkerRecord(id=OTHER, name="b"))
    await store.register(WorkerRecord(id=33, name="c"))
    await store.sign_off(33)
    await clock.advance(80)
    await store.beat(WorkerRecord(id=OTHER, name="b"))
    await clock.advance(11)
    assert await store.mark_stale(seconds(90)) == 1
    assert {w.id: w.status for w in await store.workers()} == {
        WORKER: "stale",
        OTHER: "ready",
        33: "stopped",
    }
    assert await store.mark_stale(seconds(90)) == 0


async def test_a_worker_is_seen_as_stale_also_where_nobody_is_left_to_mark_it(store, clock, peek):
    await store.register(ME)
    seen = "select status from workers"
    await clock.advance(89)
    assert [worker.status for worker in await store.workers()] == ["ready"]
    assert [row[0] for row in await peek(seen)] == ["ready"]
    await clock.advance(2)
    assert [worker.status for worker in await store.workers()] == ["stale"]
    assert [row[0] for row in await peek(seen)] == ["stale"]
    assert [row[0] for row in await peek(seen.replace("workers", "worker_utilization"))] == [
        "stale"
    ]


async def test_a_stale_worker_that_beats_again_is_ready(store, clock):
    await store.register(ME)
    await clock.advance(91)
    await store.mark_stale(seconds(90))
    await store.beat(ME)
    assert [w.status for w in await store.workers()] == ["ready"]


async def test_a_stale_worker_that_is_heard_of_is_ready_and_one_that_left_is_not(store, clock):
    await store.register(ME)
    await store.register(WorkerRecord(id=33, name="c"))
    await store.sign_off(33)
    await clock.advance(91)
    await store.mark_stale(seconds(90))
    for worker in (WORKER, 33, 12345):
        await store.heard(worker)
    assert {w.id: w.status for w in await store.workers()} == {WORKER: "ready", 33: "stopped"}
    await clock.advance(89)
    assert await store.mark_stale(seconds(90)) == 0


async def test_stale_is_a_label_and_takes_no_lease(store, clock):
    await store.register(ME)
    await put_one(store)
    claimed = await claim_one(store, lease=seconds(300))
    await clock.advance(100)
    await store.mark_stale(seconds(90))
    assert await store.recover() == []
    await finish(store, claimed)


async def test_a_running_task_names_its_worker(store):
    await store.register(ME)
    id = await put_one(store)
    await ask(store)
    assert (await store.get(id)).locked_by == "host-a:17"


async def test_leases_are_walked_page_by_page_those_that_end_first_at_the_top(store):
    for length in (60, 20, 40, 40, 40):
        await put_one(store)
        await claim_one(store, lease=seconds(length))
    whole = await store.leases()
    assert [round(view.seconds_left, -1) for view in whole] == [20, 40, 40, 40, 60]
    assert await store.leases(after=(whole[1].lease_timeout, whole[1].task)) == whole[2:]
    walked, after = [], None
    while page := await store.leases(after=after, limit=1):
        walked += page
        after = page[-1].lease_timeout, page[-1].task
    assert walked == whole
