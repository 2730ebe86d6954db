"""Which lanes there are, and which of them pass a limit: nothing is prefetched from those."""

import asyncio

import pytest

from holdfast.tasks.limits import Limit, Rate
from tests.contract.acts import TYPE, ask, claim, draft, put_one

NARROW, WIDE = Rate.parse("1/m"), Rate.parse("100/m")
LIMITS = {
    "how many run": (Limit(max_running=1), Limit(max_running=2)),
    "per key": (Limit(max_per_key=1), Limit(max_per_key=2)),
    "rate": (Limit(rate=NARROW), Limit(rate=WIDE)),
}
first_and_second = pytest.mark.parametrize(("first", "second"), LIMITS.values(), ids=LIMITS)


async def _limited(store):
    """The queues and functions whose lanes pass a limit."""
    found = await store.lanes()
    return {(found.lanes[id].queue, found.lanes[id].type) for id in found.limited}


async def test_lanes_are_found_by_their_numbers(store):
    lanes = [draft(queue="a"), draft("job:b", tags=("x",), requires=("gpu",), tenant="t")]
    await store.enqueue(lanes)
    found = await store.lanes()
    assert set(found.lanes.values()) == {draft.lane for draft in lanes}
    assert found.limited == frozenset()


@first_and_second
async def test_all_lanes_of_a_limited_function_are_limited(store, keeper, first, second):
    await put_one(store)
    await put_one(store, "job:free")
    await store.limit("type", TYPE, first)
    await keeper.store().enqueue([draft(queue="late")])
    assert await _limited(store) == {("default", TYPE), ("late", TYPE)}
    await store.limit("type", TYPE, second)
    assert await _limited(store) == {("default", TYPE), ("late", TYPE)}
    await store.limit("type", TYPE, Limit())
    assert await _limited(store) == set()


async def test_all_lanes_of_a_limited_queue_are_limited(store):
    for queue in ("slow", "free"):
        await put_one(store, queue=queue)
    await store.limit("queue", "slow", Limit(rate=NARROW))
    await put_one(store, "job:late", queue="slow")
    assert await _limited(store) == {("slow", TYPE), ("slow", "job:late")}
    await store.limit("queue", "slow", Limit())
    assert await _limited(store) == set()


async def test_a_lane_is_limited_until_the_last_of_its_limits_is_lifted(store):
    await put_one(store)
    await store.limit("type", TYPE, Limit(max_per_key=1))
    await store.limit("queue", "default", Limit(max_running=1))
    await store.limit("queue", "default", Limit())
    assert await _limited(store) == {("default", TYPE)}
    await store.limit("type", TYPE, Limit())
    assert await _limited(store) == set()


@first_and_second
async def test_the_lanes_counter_moves_with_every_limit(store, first, second):
    await put_one(store)
    seen = [(await ask(store)).lanes]
    for limit in (first, second, Limit()):
        await store.limit("type", TYPE, limit)
        seen.append((await ask(store)).lanes)
        assert (await store.lanes()).change == seen[-1]
    assert seen == sorted(set(seen))


async def test_new_lanes_of_one_call_are_found_with_one_question(store, keeper, monkeypatch):
    await put_one(store, queue="q3")
    before = (await store.lanes()).change
    asked = []
    call = keeper.driver.call

    async def listen(verb, /, **parameters):
        asked.append(verb)
        return await call(verb, **parameters)

    monkeypatch.setattr(keeper.driver, "call", listen)
    drafts = [
        draft(queue=f"q{n % 7}", tags=("x",) * (n % 2), tenant=f"t{n % 3}") for n in range(60)
    ]
    await store.enqueue(drafts)
    await store.enqueue([draft(queue="q0", tenant="t0")])
    assert asked.count("intern_lanes") == 1
    found = await store.lanes()
    assert found.change == before + 1
    assert set(found.lanes.values()) == {draft(queue="q3").lane, *(d.lane for d in drafts)}
    for made in drafts:
        task = await store.get(made.id)
        assert (task.queue, task.tags, task.tenant) == (made.queue, made.tags, made.tenant)


async def test_lanes_that_come_together_inherit_pauses_and_limits_and_share_their_keys(store):
    await store.pause("slow")
    await store.limit("type", TYPE, Limit(max_per_key=1, max_running=5))
    drafts = [draft(queue=queue, concurrency_key="acme") for queue in ("slow", "a", "b")]
    await store.enqueue([*drafts, draft("job:free", queue="slow")])
    assert await _limited(store) == {("slow", TYPE), ("a", TYPE), ("b", TYPE)}
    assert [c.lane.queue for c in await claim(store)] == []
    await store.cancel([drafts[0].id])
    assert [c.lane.queue for c in await claim(store)] == ["a"]
    await store.resume("slow")
    assert [c.lane.type for c in await claim(store)] == ["job:free"]


async def test_more_lanes_than_fit_in_one_question_are_all_found(store):
    drafts = [draft(tenant=f"t{n}") for n in range(2001)]
    await store.enqueue(drafts)
    assert {lane.tenant for lane in (await store.lanes()).lanes.values()} == {
        d.tenant for d in drafts
    }


async def test_two_who_bring_the_same_lanes_agree_on_their_numbers(store, keeper):
    others = [keeper.store() for _ in range(4)]
    await asyncio.gather(
        *(o.enqueue([draft(queue=f"q{n}") for n in range(20)]) for o in [store, *others])
    )
    assert sorted(lane.queue for lane in (await store.lanes()).lanes.values()) == sorted(
        f"q{n}" for n in range(20)
    )
    assert len(await claim(store)) == 100
