"""Limits per key: so many of one customer at once, in their order, and nobody else waits."""

import pytest
import pytest_asyncio

from holdfast.ids import new_id
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import TaskStatus
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
    put,
    put_one,
    retry,
    seconds,
    snoozed,
    status_of,
    waiting,
)


@pytest_asyncio.fixture(loop_scope="session")
async def one_per_key(store):
    await store.limit("type", TYPE, Limit(max_per_key=1))


pytestmark = pytest.mark.usefixtures("one_per_key")


async def test_a_key_runs_one_after_the_other_in_their_order(store):
    ids = await put(store, 4, concurrency_key="acme")
    for id in ids:
        claimed = await claim(store)
        assert ids_of(claimed) == [id]
        assert await claim(store) == []
        await finish(store, claimed)
    assert await claim(store) == []


async def test_one_full_key_does_not_hold_up_the_others(store):
    acme = await put(store, 3, concurrency_key="acme")
    duff = await put(store, 3, concurrency_key="duff")
    free = await put_one(store)
    assert sorted(ids_of(await claim(store))) == sorted([acme[0], duff[0], free])


async def test_keys_come_in_the_order_of_their_arrival(store):
    """A claim looks at a bounded number of keys; those that come first by name wait like others."""
    first = draft(concurrency_key="z")
    await store.enqueue([first, *(draft(concurrency_key=f"b{n:03}") for n in range(300))])
    assert ids_of(await claim(store, 1)) == [first.id]
    last = await put_one(store, concurrency_key="z2", priority=1)
    found = []
    for _ in range(5):  # 300 are ahead of it, at least 100 are let in each time
        await store.enqueue([draft(concurrency_key=f"a{new_id()}") for _ in range(100)])
        found += ids_of(await claim(store, 1))
    assert last in found


async def test_a_key_may_have_room_for_several(store):
    await store.limit("type", TYPE, Limit(max_per_key=2))
    ids = await put(store, 5, concurrency_key="acme")
    first = await claim(store)
    assert ids_of(first) == ids[:2]
    await finish(store, first[1])
    assert ids_of(await claim(store)) == [ids[2]]


async def test_a_key_is_one_over_all_queues_of_a_function(store):
    await put(store, 2, concurrency_key="acme", queue="a")
    await put(store, 2, concurrency_key="acme", queue="b", version="2")
    assert len(await claim(store)) == 1


async def test_a_key_is_a_tenants_and_a_functions_own(store):
    await store.limit("type", "job:other", Limit(max_per_key=1))
    await put(store, 2, concurrency_key="acme")
    await put(store, 2, concurrency_key="acme", tenant="other")
    await put(store, 2, "job:other", concurrency_key="acme")
    assert len(await claim(store)) == 3


async def test_keys_without_a_limit_hold_up_nothing(store):
    ids = await put(store, 20, "job:unlimited", concurrency_key="acme")
    assert ids_of(await claim(store)) == ids


async def test_the_urgent_of_a_key_goes_first(store):
    running = await put_one(store, concurrency_key="acme")
    claimed = await claim_one(store)
    assert claimed.lease.task == running
    usual, urgent = [await put_one(store, concurrency_key="acme", priority=p) for p in (0, 5)]
    await finish(store, claimed)
    assert ids_of(await claim(store)) == [urgent]
    assert await status_of(store, usual) is TaskStatus.PENDING


async def test_a_delayed_task_of_a_key_lines_up_when_it_is_due(store, clock):
    delayed = await put_one(store, concurrency_key="acme", delay=seconds(10))
    await put_one(store, concurrency_key="acme")
    claimed = await claim_one(store)
    await clock.advance(11)
    assert await claim(store) == []
    await finish(store, claimed)
    assert ids_of(await claim(store)) == [delayed]


async def test_key_and_function_limits_hold_together(store):
    await store.limit("type", TYPE, Limit(max_running=2, max_per_key=1))
    for key in ("a", "b", "c"):
        await put(store, 2, concurrency_key=key)
    claimed = await claim(store)
    assert len(claimed) == 2
    await finish(store, claimed)
    assert len(await claim(store)) == 2


@pytest.mark.parametrize(
    "end",
    [DONE, FAILED, CANCELLED, retry(60), snoozed(60), waiting()],
    ids=lambda s: s.verdict.value,
)
async def test_every_end_of_an_attempt_lets_the_next_of_its_key_in(store, end):
    ids = await put(store, 2, concurrency_key="acme")
    await finish(store, await claim_one(store), end)
    assert ids_of(await claim(store)) == [ids[1]]


async def test_what_was_handed_back_keeps_its_place_in_its_key(store):
    ids = await put(store, 3, concurrency_key="acme")
    await finish(store, await claim_one(store), HANDED_BACK)
    assert ids_of(await claim(store)) == [ids[0]]


async def test_what_was_lost_keeps_its_place_in_its_key(store, clock):
    ids = await put(store, 3, concurrency_key="acme")
    await claim_one(store)
    await clock.advance(61)
    assert await claim(store) == []
    await store.recover()
    assert ids_of(await claim(store)) == [ids[0]]


async def test_a_retried_task_of_a_key_comes_back_under_its_limit(store, clock):
    first, second = await put(store, 2, concurrency_key="acme")
    await finish(store, await claim_one(store), retry(5))
    held = await claim_one(store)
    assert held.lease.task == second
    await clock.advance(6)
    assert await claim(store) == []
    await finish(store, held)
    assert ids_of(await claim(store)) == [first]


async def test_a_replayed_dead_letter_comes_back_under_its_limit(store):
    first, second = await put(store, 2, concurrency_key="acme")
    await finish(store, await claim_one(store), FAILED)
    held = await claim_one(store)
    assert await store.retry([first]) == {first}
    assert await claim(store) == []
    await finish(store, held)
    assert ids_of(await claim(store)) == [first]
    assert held.lease.task == second


async def test_a_blocked_task_can_be_cancelled(store):
    first, second, third = await put(store, 3, concurrency_key="acme")
    held = await claim_one(store)
    assert await store.cancel([second]) == {second: "cancelled"}
    await finish(store, held)
    assert ids_of(await claim(store)) == [third]
    assert held.lease.task == first


async def test_cancelling_a_task_that_was_let_in_lets_the_next_in(store):
    await store.limit("type", TYPE, Limit(max_per_key=2))
    ids = await put(store, 4, concurrency_key="acme")
    assert len(await claim(store, 1)) == 1
    assert await store.cancel([ids[1]]) == {ids[1]: "cancelled"}
    assert ids_of(await claim(store)) == [ids[2]]


async def test_a_blocked_task_expires(store, clock):
    await put_one(store, concurrency_key="acme")
    held = await claim_one(store)
    late = await put_one(store, concurrency_key="acme", expires=seconds(5))
    await clock.advance(6)
    assert [one.task for one in await store.expire()] == [late]
    assert await status_of(store, late) is TaskStatus.FAILED
    await finish(store, held)
    assert await claim(store) == []


# ── changed while tasks run ──────────────────────────────────────────────────────────────────


async def test_a_raised_limit_lets_more_of_a_key_in(store):
    await put(store, 5, concurrency_key="acme")
    assert len(await claim(store)) == 1
    await store.limit("type", TYPE, Limit(max_per_key=3))
    assert len(await claim(store)) == 2


async def test_a_lifted_limit_lets_the_whole_key_in(store):
    await put(store, 5, concurrency_key="acme")
    assert len(await claim(store)) == 1
    await store.limit("type", TYPE, Limit())
    assert len(await claim(store)) == 4


async def test_a_lowered_limit_lets_nothing_in_until_there_is_room(store):
    await store.limit("type", TYPE, Limit(max_per_key=3))
    await put(store, 6, concurrency_key="acme")
    held = await claim(store)
    assert len(held) == 3
    await store.limit("type", TYPE, Limit(max_per_key=1))
    for claimed in held:
        assert await claim(store) == []
        await finish(store, claimed)
    assert len(await claim(store)) == 1


async def test_a_limit_holds_for_tasks_that_were_let_in_before_it(store):
    ids = await put(store, 5, "job:unlimited", concurrency_key="acme")
    held = await claim(store, 2)
    await store.limit("type", "job:unlimited", Limit(max_per_key=1))
    assert await claim(store) == []
    await finish(store, held)
    assert ids_of(await claim(store)) == [ids[2]]
    assert await claim(store) == []


async def test_many_keys_get_through_in_one_call(store):
    for n in range(30):
        await put(store, 2, concurrency_key=f"key-{n}")
    first = await claim(store)
    assert len(first) == 30
    await finish(store, first)
    assert len(await claim(store)) == 30


async def test_what_is_due_is_let_in_by_the_claim_that_finds_it(store, clock):
    late = await put_one(store, concurrency_key="acme", delay=seconds(60))
    assert await claim(store) == []
    await clock.advance(61)
    answer = await ask(store)
    assert ids_of(answer.tasks) == [late]
    assert answer.next_due is None
    assert answer.contended is None


async def test_a_claim_that_did_not_come_to_all_keys_asks_again(store):
    """It looks at a hundred of them: here at those that have no room."""
    await store.enqueue([draft(concurrency_key=f"k{n}") for n in range(100)])
    assert len(await claim(store, 100)) == 100
    await store.enqueue([draft(concurrency_key=f"k{n}") for n in range(100)])
    free = await put_one(store, concurrency_key="free")
    answer = await ask(store, want=10)
    assert answer.tasks == []
    assert 0 in (answer.next_due, answer.contended)
    assert ids_of(await claim(store)) == [free]
