"""Children that a worker takes as they are made: leased at once, where a claim could have them."""

from itertools import product
from typing import Any

import pytest

from holdfast.answers import Step, Taking
from holdfast.errors import JournalConflict, LeaseLost
from holdfast.ids import new_grant, new_id
from holdfast.tasks.limits import Limit
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import Lease
from tests.contract.acts import (
    DONE,
    MINUTE,
    OTHER,
    TYPE,
    WORKER,
    claim,
    claim_one,
    draft,
    put_one,
    seconds,
    status_of,
)

ASK = Step(position=0, kind="ask.child", name="work", value=b"{}")


def taking(most=10):
    return Taking(worker=WORKER, grant=new_grant(), lease=MINUTE, most=most)


async def parent_of(store):
    await put_one(store)
    return (await claim_one(store)).lease


async def test_children_are_leased_as_they_are_made(store):
    lease, offer = await parent_of(store), taking(most=2)
    children = [draft(parent=lease.task) for _ in range(3)]
    written = await store.record(lease, [ASK], children=children, taking=offer)
    ids = [child.id for child in children]
    assert written.children == ids
    assert written.leased == frozenset(ids[:2]), "as many as were wanted"
    assert [await status_of(store, id) for id in ids] == ["running", "running", "pending"]
    assert [task.lease.task for task in await claim(store, worker=OTHER)] == [ids[2]]
    own = [Lease(id, offer.grant, 1) for id in ids[:2]]
    assert (await store.renew(own, MINUTE)).lost == frozenset()
    assert await store.settle([(one, DONE) for one in own]) == frozenset()
    assert [a.fence for a in await store.attempts(ids[0])] == [1]
    assert (await store.get(ids[0])).try_count == 1


async def test_asked_again_after_a_lost_answer_the_same_ones_are_leased(store):
    lease, offer = await parent_of(store), taking()
    children = [draft(parent=lease.task)]
    for _ in range(2):
        written = await store.record(lease, [ASK], children=children, taking=offer)
        assert written.leased == {children[0].id}
    (found,) = await store.claimed(worker=WORKER, grant=offer.grant)
    assert (found.lease.fence, found.tries, found.parent) == (1, 1, lease.task)


async def test_what_a_claim_could_not_have_is_not_taken(store):
    lease = await parent_of(store)
    await store.limit("type", "one.at.a.time", Limit(max_running=1))
    await put_one(store, queue="closed")
    await store.pause("closed")
    wishes: list[dict[str, Any]] = [{"delay": MINUTE}, {"key": "k"}, {"concurrency_key": "c"}]
    wishes += [{"type": "one.at.a.time"}, {"queue": "closed"}]
    for position, (wish, others) in enumerate(product(wishes, [0, 1])):
        if "key" in wish:
            wish = {"key": f"k{others}"}
        child = draft(parent=lease.task, **wish)
        children = [child, *(draft(parent=lease.task) for _ in range(others))]
        step = Step(position=position, kind="ask.child", name="work", value=b"{}")
        written = await store.record(lease, [step], children=children, taking=taking())
        assert written.children == [made.id for made in children]
        assert child.id not in written.leased, wish
        assert await status_of(store, child.id) == "pending"


async def test_a_limit_that_comes_later_counts_what_was_taken(store):
    lease = await parent_of(store)
    child, second = draft(parent=lease.task, type="slow"), draft(type="slow")
    await store.record(lease, [ASK], children=[child], taking=taking())
    await store.limit("type", "slow", Limit(max_running=1))
    await store.enqueue([second])
    assert await claim(store, worker=OTHER) == []


async def test_a_stale_parent_takes_nothing(store):
    lease = await parent_of(store)
    stale = Lease(lease.task, new_grant(), lease.fence)
    child = draft(parent=lease.task)
    with pytest.raises(LeaseLost):
        await store.record(stale, [ASK], children=[child], taking=taking())
    with pytest.raises(LookupError):
        await store.get(child.id)
    assert len(await store.leases()) == 1


async def test_where_something_else_stands_no_child_is_made(store):
    lease = await parent_of(store)
    first, second = (draft(parent=lease.task) for _ in range(2))
    await store.record(lease, [ASK], children=[first], taking=taking())
    other = Step(position=0, kind="ask.child", name="other", value=b"{}")
    with pytest.raises(JournalConflict):
        await store.record(lease, [other], children=[second], taking=taking())
    with pytest.raises(LookupError):
        await store.get(second.id)
    assert len(await store.leases()) == 2


async def test_what_was_taken_has_the_wishes_of_its_draft(store):
    lease, offer = await parent_of(store), taking()
    policy = RetryPolicy(max_attempts=7, initial_delay=2.0)
    child = draft(parent=lease.task, priority=5, retry=policy, user_id="u7", payload=b"[7]")
    await store.record(lease, [ASK], children=[child], taking=offer)
    (found,) = await store.claimed(worker=WORKER, grant=offer.grant)
    assert (found.priority, found.max_tries, found.retry) == (5, 7, policy)
    assert (found.user_id, found.payload, found.lane) == ("u7", b"[7]", child.lane)
    assert (await store.get(child.id)).parent == lease.task


async def test_a_child_of_somebody_else_is_made_as_it_was_asked_for(store):
    stranger, lease = await put_one(store), await parent_of(store)
    child = draft(parent=stranger)
    await store.record(lease, [ASK], children=[child], taking=taking())
    assert (await store.get(child.id)).parent == stranger


async def test_nobody_who_wants_none_takes_any(store):
    lease = await parent_of(store)
    child = draft(parent=lease.task)
    written = await store.record(lease, [ASK], children=[child], taking=taking(most=0))
    assert written.leased == frozenset()


async def test_what_expires_is_taken_with_its_time(store, clock):
    lease, offer = await parent_of(store), taking()
    child = draft(parent=lease.task, expires=seconds(5))
    written = await store.record(lease, [ASK], children=[child], taking=offer)
    assert written.leased == {child.id}
    (found,) = await store.claimed(worker=WORKER, grant=offer.grant)
    assert found.expires_in == pytest.approx(5, abs=1)


async def test_signals_and_wakes_that_came_are_forgotten_where_a_child_is_taken(store):
    lease = await parent_of(store)
    await store.send_signal(lease.task, new_id(), "go", b"1")
    news = await store.news(lease.task, [], signals=["go"])
    await store.record(
        lease,
        [ASK],
        consumed=[signal.id for signal in news.signals],
        seen=news.wakes,
        children=[draft(parent=lease.task)],
        taking=taking(),
    )
    news = await store.news(lease.task, [], signals=["go"])
    assert (news.signals, news.wakes) == ([], [])


async def test_the_same_step_twice_is_one(store):
    lease, offer = await parent_of(store), taking()
    child = draft(parent=lease.task)
    written = await store.record(lease, [ASK, ASK], children=[child], taking=offer)
    assert written.leased == {child.id}
    assert len((await store.journal(lease.task)).steps) == 1


async def test_what_was_taken_and_lost_is_recovered(store):
    lease, offer = await parent_of(store), taking()
    child = draft(parent=lease.task)
    await store.record(lease, [ASK], children=[child], taking=offer)
    assert await store.revoke(child.id, 1)
    (found,) = await store.recover()
    assert found.lease.task == child.id
    (again,) = await claim(store, worker=OTHER)
    assert (again.lease.task, again.lease.fence, again.lane.type) == (child.id, 2, TYPE)
    assert await store.settle([(Lease(child.id, offer.grant, 1), DONE)]) == {child.id}
