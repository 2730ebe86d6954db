"""Cancel: answered `cancelled` it never starts; answered `requested` its holder is told."""

import pytest

from holdfast.errors import InvalidInput
from holdfast.ids import new_id
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    MINUTE,
    TYPE,
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


async def _ended_by_operator(store, id) -> bool:
    ending = await store.ending(id)
    assert (ending.status, ending.failure) == (TaskStatus.CANCELLED, None)
    (event,) = [e for e in await store.events() if e.task == id and e.kind == "cancelled"]
    return bool(event.by == "operator")


async def test_a_pending_task_is_cancelled_and_never_starts(store):
    first, second = await put(store, 2)
    assert await store.cancel([first]) == {first: "cancelled"}
    assert ids_of(await claim(store)) == [second]
    assert await _ended_by_operator(store, first)


async def test_a_delayed_task_is_cancelled_and_never_starts(store, clock):
    id = await put_one(store, delay=seconds(10))
    assert await store.cancel([id]) == {id: "cancelled"}
    await clock.advance(11)
    assert await claim(store) == []
    assert await _ended_by_operator(store, id)


async def test_a_task_between_two_tries_is_cancelled(store, clock):
    id = await put_one(store)
    await finish(store, await claim_one(store), retry(10))
    assert await store.cancel([id]) == {id: "cancelled"}
    await clock.advance(11)
    assert await claim(store) == []
    assert (await store.get(id)).try_count == 1


async def test_a_blocked_task_is_cancelled(store):
    await store.limit("type", TYPE, Limit(max_per_key=1))
    _, blocked = await put(store, 2, concurrency_key="k")
    held = await claim_one(store)
    assert await store.cancel([blocked]) == {blocked: "cancelled"}
    assert await _ended_by_operator(store, blocked)
    await finish(store, held)
    assert await claim(store) == []


async def test_a_waiting_task_is_cancelled(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), waiting())
    assert await store.cancel([id]) == {id: "cancelled"}
    assert await _ended_by_operator(store, id)
    assert await store.sweep_wakes() == 0
    assert await claim(store) == []


async def test_a_running_task_is_asked_to_stop(store):
    id = await put_one(store)
    claimed = await claim_one(store)
    assert await store.cancel([id]) == {id: "requested"}
    task = await store.get(id)
    assert (task.status, task.cancel_requested) == (TaskStatus.RUNNING, True)
    assert (await store.renew([claimed.lease], MINUTE)).cancel == {id}
    await finish(store, claimed, CANCELLED)
    assert await store.cancel([id]) == {id: "cancelled"}


async def test_asking_twice_is_asking_once(store, dump):
    id = await put_one(store)
    await claim_one(store)
    await store.cancel([id])
    before = await dump()
    assert await store.cancel([id]) == {id: "requested"}
    assert await dump() == before


@pytest.mark.parametrize("end", [DONE, FAILED], ids=lambda s: s.verdict.value)
async def test_an_ended_task_stays_as_it_ended(store, dump, end):
    id = await put_one(store)
    await finish(store, await claim_one(store), end)
    before = await dump()
    assert await store.cancel([id]) == {id: "ended"}
    assert await dump() == before


async def test_a_cancelled_task_is_cancelled_still(store, dump):
    id = await put_one(store)
    await store.cancel([id])
    before = await dump()
    assert await store.cancel([id]) == {id: "cancelled"}
    assert await dump() == before


async def test_nobody_knows_a_task_that_was_never_accepted(store, dump):
    before = await dump()
    id = new_id()
    assert await store.cancel([id]) == {id: "unknown"}
    assert await dump() == before


async def test_one_call_cancels_tasks_in_all_states(store):
    running = await put_one(store)
    await claim_one(store)
    done = await put_one(store)
    await finish(store, await claim_one(store))
    pending, delayed, unknown = await put_one(store), await put_one(store, delay=MINUTE), new_id()
    assert await store.cancel([running, done, pending, delayed, unknown, pending]) == {
        running: "requested",
        done: "ended",
        pending: "cancelled",
        delayed: "cancelled",
        unknown: "unknown",
    }


async def test_many_are_cancelled_at_once(store):
    ids = await put(store, 300)
    assert set((await store.cancel(ids)).values()) == {"cancelled"}
    assert await claim(store) == []


async def test_one_call_cancels_a_bounded_number(store):
    with pytest.raises(InvalidInput, match="10,000"):
        await store.cancel([new_id()] * 10_001)


# ── the caller died between the request and the withdrawal ───────────────────────────────────


async def _only_request(keeper, id) -> None:
    await keeper.driver.call("request_cancel", ids=[id], rule="asked")


@pytest.mark.parametrize("want", [1, 5])
async def test_a_task_whose_cancel_was_cut_short_is_claimed_as_cancelled(store, keeper, want):
    id = await put_one(store)
    await _only_request(keeper, id)
    (claimed,) = await claim(store, want)
    assert (claimed.lease.task, claimed.cancel_requested) == (id, True)
    await finish(store, claimed, CANCELLED)


async def test_a_delayed_task_whose_cancel_was_cut_short_ends_when_it_is_due(store, keeper, clock):
    id = await put_one(store, delay=seconds(5))
    await _only_request(keeper, id)
    await clock.advance(6)
    assert await claim(store) == []
    assert await status_of(store, id) is TaskStatus.CANCELLED


async def test_a_waiting_task_whose_cancel_was_cut_short_ends_with_the_next_sweep(store, keeper):
    id = await put_one(store)
    await finish(store, await claim_one(store), waiting())
    await _only_request(keeper, id)
    assert await store.sweep_wakes() == 1
    assert await status_of(store, id) is TaskStatus.CANCELLED


async def test_a_cancel_that_was_cut_short_can_be_asked_again(store, keeper):
    id = await put_one(store)
    await _only_request(keeper, id)
    assert await store.cancel([id]) == {id: "cancelled"}
    assert await claim(store) == []


async def test_a_task_that_stands_in_its_lane_twice_is_cancelled_once(store, keeper):
    id = await put_one(store)
    rest = "id, lane, fence, np, tries, alone, child, key"  # a fault that no verb makes
    await keeper.peek(f"insert into ready (seq, {rest}) select seq + 1000, {rest} from ready")
    assert await store.cancel([id]) == {id: "cancelled"}
    assert await claim(store) == []
