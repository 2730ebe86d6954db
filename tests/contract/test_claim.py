"""Claim: the right tasks in the right order, each to one worker, and when to ask again."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from holdfast.errors import InvalidInput
from holdfast.ids import new_grant
from holdfast.tasks.lane import Serving
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    FAILED,
    OTHER,
    TYPE,
    WORKER,
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
    status_of,
    waiting,
)


async def test_a_lane_gives_first_in_first_out(store):
    ids = [await put_one(store) for _ in range(5)]
    assert ids_of(await claim(store, 3)) == ids[:3]
    assert ids_of(await claim(store, 3)) == ids[3:]


async def test_each_comes_with_its_own_payload_however_large(store):
    payloads = [b"[%s]" % (b"1" * size) for size in (1, 4093, 4094, 4095, 70_000, 2, 1_000_000, 3)]
    ids = await store.enqueue([draft(payload=payload) for payload in payloads])
    claimed = await claim(store)
    assert [(task.lease.task, task.payload) for task in claimed] == [
        *zip(ids, payloads, strict=True)
    ]


async def test_the_order_is_the_databases_and_not_the_ids(store):
    drafts = [draft() for _ in range(3)]
    for asked in reversed(drafts):
        await store.enqueue([asked])
    assert ids_of(await claim(store)) == [d.id for d in reversed(drafts)]


async def test_within_a_lane_the_urgent_goes_first(store):
    low, high, usual = [await put_one(store, priority=p) for p in (-5, 9, 0)]
    assert ids_of(await claim(store)) == [high, usual, low]


async def test_the_urgent_of_any_lane_goes_first(store):
    await put(store, 5, queue="a")
    urgent = await put_one(store, queue="b", priority=1)
    await put(store, 5, queue="c")
    assert ids_of(await claim(store, 1)) == [urgent]


async def test_after_one_urgent_task_its_lane_gives_no_lesser_ones_before_the_others(store):
    first = await put_one(store, queue="a", priority=5)
    low = await put(store, 4, queue="a", priority=-1)
    usual = await put(store, 4, queue="b")
    assert ids_of(await claim(store, 5)) == [first, *usual]
    assert ids_of(await claim(store, 9)) == low


async def test_all_are_taken_from_many_lanes_and_priorities_in_one_call(store):
    drafts = [draft(queue=f"q{n % 4}", priority=n % 5) for n in range(60)]
    await store.enqueue(drafts)
    claimed = await claim(store, 60)
    assert sorted(ids_of(claimed)) == sorted(d.id for d in drafts)
    assert [c.priority for c in claimed] == sorted((c.priority for c in claimed), reverse=True)


async def test_one_lane_gives_all_that_is_asked_for(store):
    ids = await put(store, 500)
    assert ids_of(await claim(store, 500)) == ids


async def test_the_oldest_head_goes_first_between_equal_lanes(store):
    ids = [await put_one(store, queue=q) for q in ("c", "a", "b")]
    assert [ids_of(await claim(store, 1)) for _ in range(3)] == [[id] for id in ids]


async def test_open_lanes_share_a_claim_equally(store):
    for queue in ("a", "b", "c"):
        await put(store, 30, queue=queue)
    shares = Counter(c.lane.queue for c in await claim(store, 30))
    assert shares == {"a": 10, "b": 10, "c": 10}


async def test_a_lane_with_little_leaves_its_share_to_the_others(store):
    await put(store, 2, queue="a")
    await put(store, 50, queue="b")
    shares = Counter(c.lane.queue for c in await claim(store, 30))
    assert shares == {"a": 2, "b": 28}


async def test_tenants_come_in_turn(store):
    await put(store, 50, tenant="big")
    small = await put(store, 2, tenant="small")
    lanes = (await store.lanes()).lanes
    turns = {"big": 1, "small": 0}
    answer = await ask(store, 2, lanes=list(lanes), turns=[turns[n.tenant] for n in lanes.values()])
    assert small[0] in ids_of(answer.tasks)
    assert ids_of(answer.tasks)[0] != small[1]


async def test_a_tenant_with_many_lanes_gets_no_more_than_one_tenants_share(store):
    for queue in ("a", "b", "c"):
        await put(store, 20, tenant="wide", queue=queue)
    await put(store, 20, tenant="narrow")
    lanes = (await store.lanes()).lanes
    turns = [{"wide": 0, "narrow": 1}[lane.tenant] for lane in lanes.values()]
    claimed = (await ask(store, 12, lanes=list(lanes), turns=turns)).tasks
    assert Counter(c.lane.tenant for c in claimed) == {"wide": 6, "narrow": 6}


async def test_a_worker_gets_only_what_its_lanes_hold(store):
    mine = await put_one(store, queue="mine")
    await put_one(store, queue="yours")
    assert ids_of(await claim(store, serving=Serving(queues=frozenset({"mine"})))) == [mine]


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        (Serving(), {"plain", "tagged"}),
        (Serving(tags=frozenset({"mail"})), {"plain", "tagged"}),
        (Serving(tags=frozenset({"video"})), {"plain"}),
        (Serving(capabilities=frozenset({"gpu"})), {"plain", "tagged"}),
        (Serving(capabilities=frozenset({"gpu", "eu"})), {"plain", "tagged", "demanding"}),
    ],
    ids=["anything", "tag", "other tag", "half of what is required", "all that is required"],
)
async def test_tags_and_requirements_choose_the_worker(store, serving, expected):
    await put_one(store, "t:plain")
    await put_one(store, "t:tagged", tags=("billing", "mail"))
    await put_one(store, "t:demanding", requires=("eu", "gpu"))
    claimed = await claim(store, serving=serving)
    assert {c.lane.type.removeprefix("t:") for c in claimed} == expected


async def test_a_worker_takes_only_versions_that_it_knows(store):
    old = await put_one(store, version="1")
    await put_one(store, version="2")
    serving = Serving(types=frozenset({(TYPE, "1")}))
    assert ids_of(await claim(store, serving=serving)) == [old]


async def test_no_task_goes_to_two_workers(store, keeper):
    ids = await put(store, 300)
    stores = [keeper.store() for _ in range(6)]
    lanes = await lanes_of(store)
    taken: list[UUID] = []

    async def work(worker: int) -> None:
        while len(taken) < 300:
            answer = await stores[worker].claim(
                worker=worker, lanes=lanes, want=7, lease=seconds(60)
            )
            taken.extend(ids_of(answer.tasks))

    await asyncio.gather(*(work(n) for n in range(6)))
    assert sorted(taken) == sorted(ids)


async def test_each_claim_has_a_grant_of_its_own(store):
    await put(store, 2)
    first, second = await ask(store, 1), await ask(store, 1)
    assert first.grant != second.grant
    assert first.tasks[0].lease.grant == first.grant


async def test_a_claimed_task_is_seen_as_running(store):
    id = await put_one(store)
    await claim_one(store)
    task = await store.get(id)
    assert (task.status, task.try_count, task.locked_by) == (TaskStatus.RUNNING, 1, str(WORKER))
    assert task.lease_timeout - task.started_at == seconds(60)


async def test_nothing_waiting_is_answered_plainly(store):
    await put_one(store)
    await claim_one(store)
    answer = await ask(store)
    assert (answer.tasks, answer.full, answer.next_due) == ([], False, None)
    assert answer.contended is None


@pytest.mark.parametrize("lanes", [[], [123456]], ids=["none", "unknown"])
async def test_lanes_that_are_not_there_give_nothing(store, lanes):
    await put_one(store)
    answer = await store.claim(worker=WORKER, lanes=lanes, want=5, lease=seconds(9))
    assert (answer.tasks, answer.full, answer.contended) == ([], False, None)


@pytest.mark.parametrize("want", [0, -1, 10_001])
async def test_a_claim_asks_for_a_sensible_number(store, dump, want):
    await put_one(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="1 to 10000"):
        await claim(store, want)
    assert await dump() == before


@pytest.mark.parametrize("lease", [seconds(0), seconds(-1), seconds(367 * 86400)], ids=str)
async def test_a_lease_has_a_sensible_length(store, dump, lease):
    await put_one(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="lease"):
        await claim(store, lease=lease)
    assert await dump() == before


# ── when to ask again ────────────────────────────────────────────────────────────────────────


async def test_the_answer_says_when_the_next_delayed_task_is_due(store, clock):
    await put_one(store, delay=seconds(50))
    await put_one(store, delay=seconds(20))
    assert (await ask(store)).next_due == pytest.approx(20, abs=0.01)
    await clock.advance(5)
    assert (await ask(store)).next_due == pytest.approx(15, abs=0.01)


async def test_what_waits_for_a_wake_has_no_due_time(store):
    await put_one(store)
    await finish(store, await claim_one(store), waiting())
    assert (await ask(store)).next_due is None


async def test_due_tasks_line_up_behind_those_who_wait_already(store, clock):
    delayed = await put_one(store, delay=seconds(5))
    await clock.advance(6)
    usual = await put_one(store)
    assert ids_of(await claim(store)) == [usual, delayed]


async def test_due_tasks_line_up_in_the_order_of_their_times(store, clock):
    late, early, middle = [await put_one(store, delay=seconds(n)) for n in (9, 3, 6)]
    await clock.advance(10)
    assert await store.promote() == 3
    assert ids_of(await claim(store)) == [early, middle, late]


async def test_what_is_not_due_stays_where_it_is_when_others_are(store, clock):
    due, _ = [await put_one(store, delay=seconds(n)) for n in (3, 9)]
    await clock.advance(5)
    assert ids_of(await claim(store)) == [due]


async def test_promotion_takes_a_bounded_number(store, clock):
    await put(store, 5, delay=seconds(1))
    await clock.advance(2)
    assert [await store.promote(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_the_lanes_counter_moves_when_a_lane_is_added(store, keeper):
    await put_one(store)
    before = (await ask(store)).lanes
    await put_one(store)
    assert (await ask(store)).lanes == before
    await keeper.store().enqueue([draft(queue="new")])
    after = (await ask(store)).lanes
    assert after > before
    assert (await store.lanes()).change == after


async def test_a_claim_that_got_all_it_wanted_was_not_contended(store):
    await put(store, 10)
    await store.limit("type", TYPE, Limit(max_running=50))
    for _ in range(5):
        assert (await ask(store, 2)).contended is None


# ── asked again by its grant ─────────────────────────────────────────────────────────────────


async def test_a_claim_whose_answer_was_lost_is_asked_for_again(store):
    await put(store, 3, payload=b"[1]")
    grant = new_grant()
    answer = await ask(store, 2, grant=grant)
    assert await store.claimed(worker=WORKER, grant=grant) == answer.tasks


async def test_only_what_is_still_held_is_answered_again(store):
    await put(store, 3)
    answer = await ask(store, 3)
    await finish(store, answer.tasks[0])
    await finish(store, answer.tasks[1], retry(9))
    again = await store.claimed(worker=WORKER, grant=answer.grant)
    assert again == answer.tasks[2:]


async def test_nobody_else_is_answered_with_a_grant(store):
    await put_one(store)
    answer = await ask(store)
    assert await store.claimed(worker=OTHER, grant=answer.grant) == []
    assert await store.claimed(worker=WORKER, grant=new_grant()) == []


async def test_a_process_that_has_seen_no_lanes_can_ask_again(store, keeper):
    await put_one(store)
    answer = await ask(store)
    assert await keeper.store().claimed(worker=WORKER, grant=answer.grant) == answer.tasks


# ── nothing hides, nothing wedges ────────────────────────────────────────────────────────────


async def test_ten_thousand_blocked_tasks_do_not_hide_one_that_may_run(store):
    await store.limit("type", "job:slow", Limit(max_running=1))
    await store.enqueue([draft("job:slow", priority=5) for _ in range(5000)])
    await store.limit("type", "job:keyed", Limit(max_per_key=1))
    await store.enqueue([draft("job:keyed", concurrency_key="k", priority=4) for _ in range(5000)])
    assert len(await claim(store, 2)) == 2
    eligible = await put_one(store, "job:quick")
    assert ids_of(await claim(store, 1)) == [eligible]


async def test_a_task_that_stands_in_a_lane_twice_does_not_wedge_it(store, keeper):
    first, second = await put(store, 2)
    await _duplicate(keeper, first)
    assert sorted(ids_of(await claim(store))) == sorted([first, second])
    assert await claim(store) == []


async def test_a_running_task_that_stands_in_its_lane_does_not_wedge_it(store, keeper):
    first, second = await put(store, 2)
    await _duplicate(keeper, first)
    assert ids_of(await claim(store, 1)) == [first]
    assert ids_of(await claim(store)) == [second]


async def test_an_ended_task_that_stands_in_its_lane_does_not_end_twice(store, keeper):
    first, second = await put(store, 2)
    await _duplicate(keeper, first)
    await finish(store, await claim(store, 1))
    claimed = await claim(store)
    refused = await store.settle([(c.lease, FAILED) for c in claimed])
    assert refused <= {first}
    assert await status_of(store, first) is TaskStatus.DONE
    assert await status_of(store, second) is TaskStatus.FAILED


@pytest.mark.parametrize("want", [1, 2, 100])
@pytest.mark.parametrize("others", [0, 3])
async def test_a_row_of_a_task_that_was_forgotten_is_no_task(store, keeper, clock, want, others):
    stray = await put_one(store)
    await _duplicate(keeper, stray)
    await finish(store, await claim(store, 1))
    await clock.advance(5)
    assert await store.cleanup(seconds(1)) == 1
    ids = await put(store, others)
    grant = new_grant()
    taken = {*ids_of(await claim(store, want, grant=grant))}
    taken |= {*ids_of(await claim(store, want, grant=grant))}  # once more after a lost answer
    assert {*ids_of(await store.claimed(worker=WORKER, grant=grant))} == taken
    taken |= {*ids_of(await claim(store))}
    assert taken == {*ids}
    await clock.advance(100)
    await store.recover()
    assert {*ids_of(await claim(store))} == {*ids}
    for table in ("ready", "lease", "attempt"):
        await keeper.peek(f"delete from {table} where id = {keeper.literal(stray)}")


async def _duplicate(keeper, id) -> None:
    """A fault that no verb makes: a second row in the lane."""
    rest = "id, lane, fence, np, tries, alone, child, key"
    await keeper.peek(
        f"insert into ready (seq, {rest}) "
        f"select seq + 100000, {rest} from ready where id = {keeper.literal(id)}"
    )
