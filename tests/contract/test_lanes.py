"""Which lanes there are, and which of them pass a limit: nothing is prefetched from those."""

import pytest

from holdfast.tasks.limits import Limit, Rate
from tests.contract.acts import TYPE, ask, draft, put_one

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
