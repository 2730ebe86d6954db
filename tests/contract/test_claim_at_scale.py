"""Claims over many lanes and many priorities: nothing urgent is passed by, nothing is forgotten."""

import random
from collections import Counter
from uuid import UUID

import pytest

from holdfast.answers import ClaimAnswer
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lane import Serving
from holdfast.tasks.limits import Limit
from tests.contract.acts import OTHER, ask, claim, draft, ids_of, lanes_of, put

MANY = 600  # more lanes than a claim looks at one by one


def _drafts(lanes: int, depths: list[int], priorities: int, chance: random.Random):
    return [
        draft(f"job:{lane}", priority=chance.randrange(priorities))
        for lane in range(lanes)
        for _ in range(chance.choice(depths))
    ]


@pytest.mark.parametrize(
    ("lanes", "depths", "priorities"),
    [
        (40, [1], 1000),
        (40, [1, 2, 60], 1000),
        (40, [0, 1, 5, 200], 8),
        (12, [50], 300),
        (30, [1, 100], 3),
    ],
    ids=["one each", "some are rich", "few priorities", "many each", "almost alike"],
)
@pytest.mark.parametrize("want", [7, 100])
async def test_a_claim_takes_the_most_urgent_of_all_lanes(store, lanes, depths, priorities, want):
    drafts = _drafts(lanes, depths, priorities, random.Random(want))
    random.Random(1).shuffle(drafts)
    await store.enqueue(drafts)
    waiting = sorted((d.priority for d in drafts), reverse=True)
    while waiting:
        claimed = await claim(store, want)
        assert [c.priority for c in claimed] == waiting[:want]
        del waiting[:want]


async def test_a_rich_lane_among_poor_ones_gives_no_more_than_is_its_due(store):
    """The poor are emptied first, and then the rich one has less urgent ones as well."""
    for n in range(8):
        await put(store, 1, f"job:{n}", priority=100 - n)
    await put(store, 300, "job:7", priority=50)
    await put(store, 5, "job:8", priority=60)
    await put(store, 5, "job:9", priority=40)
    claimed = await claim(store, 210)
    assert [c.priority for c in claimed] == [*range(100, 92, -1), *[60] * 5, *[50] * 197]


async def test_equal_lanes_below_others_share_what_is_left(store):
    for n in range(5):
        await put(store, 1, f"job:{n}", priority=9 - n)
    for tenant in ("a", "b", "c"):
        await put(store, 50, tenant=tenant)
    await put(store, 5, priority=-1)
    shares = Counter(c.lane.tenant for c in await claim(store, 35) if c.priority == 0)
    assert shares == {"a": 10, "b": 10, "c": 10}


async def test_a_limit_holds_between_lanes_of_many_priorities(store):
    for n in range(40):
        await put(store, 3, f"job:{n}", priority=n)
    for n in (39, 30, 20, 5):
        await store.limit("type", f"job:{n}", Limit(max_running=1))
    claimed = await claim(store, 100)
    expected = [n for n in range(39, -1, -1) for _ in range(1 if n in (39, 30, 20, 5) else 3)]
    assert [c.priority for c in claimed] == expected[:100]


async def test_within_its_priority_every_lane_gives_first_in_first_out(store):
    drafts = _drafts(30, [1, 5, 40], 6, random.Random(3))
    await store.enqueue(drafts)
    order: dict[tuple[str, int], list[UUID]] = {}
    for asked in drafts:
        order.setdefault((asked.type, asked.priority), []).append(asked.id)
    taken: dict[tuple[str, int], list[UUID]] = {}
    while claimed := await claim(store, 64):
        for task in claimed:
            taken.setdefault((task.lane.type, task.priority), []).append(task.lease.task)
    assert taken == order


# ── many lanes ───────────────────────────────────────────────────────────────────────────────


async def _lanes(store: SqlStore, count: int = MANY) -> list[int]:
    """Very many lanes, all empty."""
    await store.enqueue([draft(f"job:{n}") for n in range(count)])
    lanes = await lanes_of(store)
    while (await ask(store, 1000, worker=OTHER, lanes=lanes)).tasks:
        pass
    return lanes


async def test_the_few_lanes_that_hold_something_are_found_among_many(store):
    lanes = await _lanes(store)
    ids = [(await put(store, 1, f"job:{n}", priority=n))[0] for n in (3, 0, 599, 250)]
    claimed = await claim(store, 3, lanes=lanes)
    assert ids_of(claimed) == [ids[2], ids[3], ids[0]]
    assert ids_of(await claim(store, 3, lanes=lanes)) == [ids[1]]
    assert await claim(store, 3, lanes=lanes) == []


async def test_of_many_lanes_a_worker_takes_only_those_that_it_serves(store):
    await _lanes(store, 2 * MANY)
    every = {lane: id for id, lane in (await store.lanes()).lanes.items()}
    mine = [id for lane, id in every.items() if int(lane.type[4:]) % 2]
    random.Random(1).shuffle(mine)  # in whatever order
    await store.enqueue([draft(f"job:{n}") for n in (2, 3, 4, *range(6, 60, 3))])
    claimed = await claim(store, 100, lanes=mine)
    assert {int(c.lane.type[4:]) for c in claimed} == set(range(3, 60, 6))
    few = [id for lane, id in every.items() if lane.type in ("job:2", "job:3", "job:4")]
    assert {c.lane.type for c in await claim(store, 100, lanes=few)} == {"job:2", "job:4"}


async def test_tenants_come_in_turn_also_over_many_lanes(store):
    await _lanes(store)
    for n in range(5):
        await put(store, 20, f"job:{n}", tenant="wide")
    await put(store, 20, tenant="narrow")
    lanes = (await store.lanes()).lanes
    turns = [{"wide": 2, "narrow": 1}.get(lane.tenant, 0) for lane in lanes.values()]
    claimed = (await ask(store, 20, lanes=list(lanes), turns=turns)).tasks
    assert Counter(c.lane.tenant for c in claimed) == {"wide": 10, "narrow": 10}
    assert (await ask(store, 1, lanes=list(lanes), turns=turns)).tasks[0].lane.tenant == "narrow"


async def test_a_paused_queue_gives_nothing_also_among_many_lanes(store):
    lanes = await _lanes(store)
    await put(store, 1, "job:1", queue="slow")
    (id,) = await put(store, 1, "job:2")
    await store.pause("slow")
    lanes = await lanes_of(store, Serving())
    assert ids_of(await claim(store, lanes=lanes)) == [id]


async def _rounds(store: SqlStore, lanes: list[int], want: int, calls: int) -> list[ClaimAnswer]:
    return [await ask(store, want, lanes=lanes) for _ in range(calls)]


async def test_a_lane_is_not_passed_by_for_ever_where_very_many_hold_something(store):
    await store.enqueue([draft(f"job:{n}") for _ in range(2) for n in range(1100)])
    lanes = await lanes_of(store)
    answers = await _rounds(store, lanes, 50, 4)
    places = {lanes.index(id): lane for id, lane in (await store.lanes()).lanes.items()}
    last = {places[n].type for n in range(1000, 1100)}
    first = {places[n].type for n in range(1000)}
    served = {c.lane.type for answer in answers for c in answer.tasks}
    assert len(served) == 200
    assert served & first
    assert (
        served & last or store.one_writer
    )  # there, a claim sees all lanes: the oldest heads first


async def test_a_claim_takes_all_that_very_many_lanes_hold(store):
    drafts = [draft(f"job:{n}", priority=n % 3) for n in range(1100)]
    await store.enqueue(drafts)
    claimed = await claim(store, 2000)
    assert sorted(ids_of(claimed)) == sorted(d.id for d in drafts)
    assert await claim(store, 5) == []
