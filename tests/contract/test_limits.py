"""Limits of functions and queues: never one too many, and never one forgotten."""

import asyncio
from uuid import UUID

import pytest

from holdfast.errors import InvalidInput
from holdfast.tasks.lane import Serving
from holdfast.tasks.limits import Limit
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    HANDED_BACK,
    TYPE,
    ask,
    claim,
    claim_one,
    draft,
    finish,
    ids_of,
    lanes_of,
    put,
    put_one,
    retry,
    seconds,
    snoozed,
    waiting,
)


async def test_a_function_runs_no_more_often_than_its_limit(store):
    await put(store, 10)
    await store.limit("type", TYPE, Limit(max_running=3))
    claimed = await claim(store)
    assert len(claimed) == 3
    await finish(store, claimed[:2])
    assert len(await claim(store)) == 2


async def test_a_full_gate_is_told_apart_from_an_empty_queue(store):
    await put(store, 4)
    await store.limit("type", TYPE, Limit(max_running=3))
    assert (await ask(store)).full
    answer = await ask(store)
    assert (answer.tasks, answer.full, answer.contended) == ([], True, None)


async def test_a_queue_runs_no_more_tasks_than_its_limit(store):
    await put(store, 5, "job:a", queue="narrow")
    await put(store, 5, "job:b", queue="narrow")
    await put(store, 5, "job:a", queue="wide")
    await store.limit("queue", "narrow", Limit(max_running=4))
    claimed = await claim(store)
    assert len(claimed) == 9
    assert sum(c.lane.queue == "narrow" for c in claimed) == 4


@pytest.mark.parametrize(("of_type", "of_queue"), [(5, 3), (3, 5)])
async def test_the_narrower_of_two_gates_decides(store, of_type, of_queue):
    await put(store, 10, queue="q")
    await store.limit("type", TYPE, Limit(max_running=of_type))
    await store.limit("queue", "q", Limit(max_running=of_queue))
    claimed = await claim(store)
    assert len(claimed) == 3
    await finish(store, claimed)
    assert len(await claim(store)) == 3


async def test_a_function_dispatched_to_two_queues_has_one_gate(store):
    await store.limit("type", TYPE, Limit(max_running=3))
    await put(store, 5, queue="a")
    await put(store, 5, queue="b", tenant="other", tags=("x",))
    assert len(await claim(store)) == 3


async def test_a_limit_holds_for_lanes_that_come_later(store):
    await store.limit("type", TYPE, Limit(max_running=1))
    await store.limit("queue", "late", Limit(max_running=1))
    await put(store, 3, queue="late")
    await put(store, 3, "job:other", queue="late")
    assert len(await claim(store)) == 1


async def test_a_limit_is_one_for_all_workers(store, keeper):
    await put(store, 40)
    await store.limit("type", TYPE, Limit(max_running=5))
    lanes = await lanes_of(store)
    stores = [keeper.store() for _ in range(6)]
    running = 0

    async def work(worker: int) -> None:
        nonlocal running
        after = None
        for _ in range(8):
            answer = await stores[worker].claim(
                worker=worker, lanes=lanes, want=3, lease=seconds(60), after=after
            )
            running += len(answer.tasks)
            assert running <= 5
            running -= len(answer.tasks)
            await finish(stores[worker], answer.tasks)
            after = answer.contended

    await asyncio.gather(*(work(n) for n in range(6)))


async def test_workers_that_come_together_fill_a_limit(store, keeper):
    await put(store, 40)
    await store.limit("type", TYPE, Limit(max_running=20))
    lanes = await lanes_of(store)

    async def work(worker: int) -> int:
        taken, after = 0, None
        while True:
            answer = await keeper.store().claim(
                worker=worker, lanes=lanes, want=5, lease=seconds(60), after=after
            )
            taken += len(answer.tasks)
            after = answer.contended
            if not answer.tasks and after is None:
                assert answer.full
                return taken

    assert sum(await asyncio.gather(*(work(n) for n in range(6)))) == 20


@pytest.mark.parametrize(
    "end",
    [DONE, FAILED, CANCELLED, retry(60), snoozed(60), waiting(), HANDED_BACK],
    ids=lambda s: s.verdict.value,
)
async def test_every_end_of_an_attempt_makes_room(store, end):
    await put(store, 3, queue="q", max_tries=9)
    await store.limit("type", TYPE, Limit(max_running=1))
    await store.limit("queue", "q", Limit(max_running=1))
    for _ in range(2):
        claimed = await claim_one(store)
        assert await claim(store) == []
        await finish(store, claimed, end)
    assert len(await claim(store)) == 1


async def test_a_lapsed_lease_counts_until_it_is_recovered(store, clock):
    await put(store, 3)
    await store.limit("type", TYPE, Limit(max_running=1))
    await claim_one(store)
    await clock.advance(61)
    assert await claim(store) == []
    assert len(await store.recover()) == 1
    assert len(await claim(store)) == 1


async def test_a_full_gate_does_not_hold_up_the_lanes_beside_it(store):
    await put(store, 5, "job:narrow", priority=9)
    await put(store, 5, "job:wide")
    await store.limit("type", "job:narrow", Limit(max_running=1))
    claimed = await claim(store)
    assert sum(c.lane.type == "job:narrow" for c in claimed) == 1
    assert sum(c.lane.type == "job:wide" for c in claimed) == 5


async def test_the_tenant_whose_turn_it_is_comes_first_at_a_limited_function(store):
    for tenant in ("a", "b"):
        await put(store, 20, tenant=tenant)
    await store.limit("type", TYPE, Limit(max_running=2))
    lanes = (await store.lanes()).lanes
    for first in ("b", "a", "b"):
        turns = [int(lane.tenant != first) for lane in lanes.values()]
        claimed = (await ask(store, 1, lanes=list(lanes), turns=turns)).tasks
        assert [c.lane.tenant for c in claimed] == [first]
        await finish(store, claimed)


async def test_very_many_limited_lanes_are_served_in_a_few_calls(store):
    drafts = [draft(f"job:{n}") for n in range(100)]
    for n in range(100):
        await store.limit("type", f"job:{n}", Limit(max_running=1))
    await store.enqueue(drafts)
    lanes = await lanes_of(store)
    taken: list[UUID] = []
    for _ in range(3):
        answer = await ask(store, 200, lanes=lanes)
        taken += ids_of(answer.tasks)
        if answer.contended is None:
            break
    assert sorted(taken) == sorted(d.id for d in drafts)


async def test_one_call_takes_from_a_limited_lane_all_that_there_is_room_for(store):
    await put(store, 30)
    await store.limit("type", TYPE, Limit(max_running=25))
    assert len(await claim(store, 20)) == 20
    assert len(await claim(store, 20)) == 5


# ── changed while tasks run ──────────────────────────────────────────────────────────────────


async def test_a_new_limit_counts_what_runs_already(store):
    await put(store, 10)
    held = await claim(store, 4)
    await store.limit("type", TYPE, Limit(max_running=5))
    assert len(await claim(store)) == 1
    await finish(store, held)
    assert len(await claim(store)) == 4


async def test_a_limit_lowered_below_what_runs_lets_nothing_in_until_there_is_room(store):
    await put(store, 10)
    await store.limit("type", TYPE, Limit(max_running=5))
    held = await claim(store)
    await store.limit("type", TYPE, Limit(max_running=2))
    for n in (0, 1, 2):
        assert await claim(store) == []
        await finish(store, held[n])
    assert await claim(store) == []
    await finish(store, held[3])
    assert len(await claim(store)) == 1


async def test_a_raised_limit_lets_more_in(store):
    await put(store, 10)
    await store.limit("type", TYPE, Limit(max_running=2))
    assert len(await claim(store)) == 2
    await store.limit("type", TYPE, Limit(max_running=5))
    assert len(await claim(store)) == 3


async def test_a_lifted_limit_lets_all_in_and_loses_no_count(store):
    await put(store, 10)
    await store.limit("type", TYPE, Limit(max_running=3))
    counted = await claim(store)
    await store.limit("type", TYPE, Limit())
    uncounted = await claim(store, 4)
    assert len(uncounted) == 4
    await finish(store, counted[:1])
    await store.limit("type", TYPE, Limit(max_running=5))
    assert await claim(store) == []
    await finish(store, uncounted[:2])
    assert len(await claim(store)) == 1
    await finish(store, [*counted[1:], *uncounted[2:]])
    assert len(await claim(store)) == 2


async def test_lifting_one_limit_leaves_the_other(store):
    await put(store, 10, queue="q")
    await store.limit("type", TYPE, Limit(max_running=2))
    await store.limit("queue", "q", Limit(max_running=4))
    assert len(await claim(store)) == 2
    await store.limit("type", TYPE, Limit())
    assert len(await claim(store)) == 2


async def test_a_limit_tells_the_workers_to_look_at_their_lanes_again(store):
    await put_one(store)
    before = (await ask(store)).lanes
    await store.limit("type", TYPE, Limit(max_running=2))
    assert (await ask(store)).lanes > before


@pytest.mark.parametrize(
    ("kind", "name", "limit", "message"),
    [
        ("worker", "w", lambda: Limit(max_running=1), "not on a 'worker'"),
        ("queue", "q", lambda: Limit(max_per_key=1), "belongs to a function"),
        ("queue", "no name", lambda: Limit(max_running=1), "is not a name"),
        ("type", "", lambda: Limit(max_running=1), "is not a name"),
        ("type", TYPE, lambda: Limit(max_running=0), "to stop a queue, pause it"),
        ("type", TYPE, lambda: Limit(max_per_key=1_000_001), "for a key"),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused(store, dump, kind, name, limit, message):
    before = await dump()
    with pytest.raises(InvalidInput, match=message):
        await store.limit(kind, name, limit())
    assert await dump() == before


async def test_a_worker_that_serves_only_limited_lanes_hears_that_they_are_full(store):
    await put(store, 2, queue="a")
    await put(store, 2, queue="b")
    await store.limit("queue", "a", Limit(max_running=1))
    await claim(store, serving=Serving(queues=frozenset({"a"})))
    only_a = await ask(store, serving=Serving(queues=frozenset({"a"})))
    assert (only_a.tasks, only_a.full) == ([], True)
    both = await ask(store, 2)
    assert len(both.tasks) == 2
