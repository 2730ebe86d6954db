"""The SQL function: tasks from any language, also inside a transaction of its own."""

import asyncpg
import msgspec
import pytest
from msgspec.structs import replace

from holdfast.answers import TaskFilter
from holdfast.errors import UnknownTask
from holdfast.tasks.lane import Lane
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    FAILED,
    TYPE,
    ask,
    claim,
    claim_one,
    finish,
    ids_of,
    put_one,
    seconds,
    status_of,
)

ONLY = "postgres"


@pytest.fixture
def enqueue(peek):
    """`await enqueue("'type', queue => 'q'")` is the id of a new task."""

    async def call(arguments: str):
        ((id,),) = await peek(f"select enqueue({arguments})")
        return id

    return call


async def test_a_task_of_a_known_lane_is_there_at_once(store, enqueue):
    await put_one(store)
    id = await enqueue(f"'{TYPE}', args => '[7, \"x\"]', kwargs => '{{\"now\": true}}'")
    first, second = await claim(store)
    assert second.lease.task == id
    assert msgspec.json.decode(second.payload) == {"args": [7, "x"], "kwargs": {"now": True}}
    assert first.lane == second.lane


async def test_a_task_of_an_unknown_lane_is_taken_with_the_next_claim(store, enqueue):
    id = await enqueue(
        "'job:new', queue => 'vip', priority => 5, max_tries => 4, version => '2', "
        "tags => array['b', 'a', 'b'], requires => array['gpu'], tenant => 'acme'"
    )
    task = await store.get(id)
    assert (task.type, task.queue, task.tenant, task.version) == ("job:new", "vip", "acme", "2")
    assert (task.priority, task.max_tries, task.status) == (5, 4, TaskStatus.PENDING)
    assert (task.tags, task.requires) == (("a", "b"), ("gpu",))
    await ask(store)  # any worker's claim, whatever it serves
    assert ids_of(await claim(store)) == [id]
    assert (await store.get(id)).tags == ("a", "b")


async def test_a_task_of_an_unknown_lane_stands_among_those_put_off(store, enqueue):
    await store.limit("queue", "vip", Limit(max_running=3))
    await store.pause("vip")
    id = await enqueue(
        "'job:new', queue => 'vip', version => '2', tags => array['b', 'a'], "
        "requires => array['gpu'], tenant => 'acme'"
    )
    found = await store.standing(id)
    assert found.lane == Lane(
        queue="vip", type="job:new", version="2", tags=("a", "b"), requires=("gpu",), tenant="acme"
    )
    assert (found.place, found.due, found.queue_paused) == ("later", None, True)
    assert [(gate.kind, gate.running) for gate in found.gates] == [("queue", 0)]


async def test_a_task_of_an_unknown_lane_is_promoted_by_the_sweep(store, enqueue):
    id = await enqueue("'job:new'")
    assert await store.promote() == 1
    assert ids_of(await claim(store)) == [id]


async def test_a_delayed_task_waits(store, clock, enqueue):
    await put_one(store)
    await claim(store)
    known = await enqueue(f"'{TYPE}', delay => interval '10 seconds'")
    unknown = await enqueue("'job:new', delay => '20 seconds'")
    await clock.advance(11)
    assert ids_of(await claim(store)) == [known]
    await clock.advance(10)
    await store.promote()
    assert ids_of(await claim(store)) == [unknown]


async def test_a_task_runs_at_its_time(store, clock, enqueue, keeper):
    id = await enqueue(f"'job:new', run_at => {keeper.schema}.clock() + interval '5 seconds'")
    assert await claim(store) == []
    await clock.advance(6)
    await store.promote()
    assert ids_of(await claim(store)) == [id]


async def test_a_task_expires(store, clock, enqueue):
    id = await enqueue("'job:new', expires => interval '5 seconds'")
    await clock.advance(6)
    assert [one.task for one in await store.expire()] == [id]
    assert (await store.ending(id)).failure.type == "Expired"


async def test_a_key_is_one_task(store, enqueue):
    first = await enqueue("'job:new', idempotency_key => 'order-7'")
    assert await enqueue("'job:new', idempotency_key => 'order-7'") == first
    await store.promote()
    assert await enqueue("'job:new', idempotency_key => 'order-7'") == first
    with pytest.raises(asyncpg.UniqueViolationError, match="order-7"):
        await enqueue("'job:new', args => '[1]', idempotency_key => 'order-7'")
    assert ids_of(await claim(store)) == [first]


async def test_a_user_is_named_as_everywhere(store, enqueue):
    ids = [await enqueue("'job:new', user_id => 'ann ü'") for _ in range(2)]
    await store.promote()
    ids += [await enqueue("'job:new', user_id => 'ann ü'"), await enqueue("'job:new'")]
    taken = {task.lease.task: task.user_id for task in await claim(store)}
    assert [taken[id] for id in ids] == ["ann ü"] * 3 + [None]
    await enqueue("'job:newer', user_id => 'ann ü', tenant => 'acme'")
    page = await store.list_tasks(TaskFilter(user_id="ann ü"))
    assert len(page.tasks) == 4, "also where nobody knows its lane yet"
    page = await store.list_tasks(TaskFilter(user_id="ann ü", tenant="default"))
    assert [task.id for task in page.tasks] == sorted(ids[:3], reverse=True)


async def test_a_concurrency_key_holds(store, enqueue):
    await store.limit("type", "job:new", Limit(max_per_key=1))
    first = await enqueue("'job:new', concurrency_key => 'acme'")
    await store.promote()
    second = await enqueue("'job:new', concurrency_key => 'acme'")
    (held,) = await claim(store)
    assert held.lease.task == first
    await finish(store, held)
    assert ids_of(await claim(store)) == [second]


async def test_nothing_of_a_rolled_back_transaction_is_left(store, keeper):
    await put_one(store)
    await claim(store)
    before = await keeper.dump()
    async with keeper.transaction(keep=False) as conn:
        for type in (TYPE, "job:new"):
            await conn.fetchval(f"select {keeper.schema}.enqueue($1)", type)
    assert await keeper.dump() == before
    async with keeper.transaction(keep=True) as conn:
        id = await conn.fetchval(f"select {keeper.schema}.enqueue($1)", "job:new")
    await store.promote()
    assert ids_of(await claim(store)) == [id]


# ── before anybody knows its lane ────────────────────────────────────────────────────────────


async def test_a_task_without_a_lane_can_be_cancelled_and_replayed(store, enqueue):
    id = await enqueue("'job:new', queue => 'vip', delay => '1 minute'")
    assert await store.cancel([id]) == {id: "cancelled"}
    assert (await store.get(id)).type == "job:new"
    assert await store.retry([id]) == {id}
    claimed = await claim_one(store)
    assert (claimed.lease.task, claimed.lane.queue) == (id, "vip")


async def test_a_task_without_a_lane_can_go_ahead(store, enqueue):
    id = await enqueue("'job:new', queue => 'vip', delay => '1 minute'")
    assert await store.retry([id]) == {id}
    assert (await claim_one(store)).lane.queue == "vip"


async def test_a_task_without_a_lane_is_forgotten_with_its_key(store, clock, enqueue, keeper):
    id = await enqueue("'job:new', delay => '1 minute', idempotency_key => 'order-7'")
    await store.cancel([id])
    await clock.advance(100)
    assert await store.cleanup(seconds(50)) == 1
    with pytest.raises(UnknownTask):
        await store.get(id)
    left = {t for t, rows in (await keeper.dump()).items() if keeper.shown(id) in str(rows)}
    assert left == set()


async def test_a_task_without_a_lane_is_listed_as_others_are(store, enqueue):
    id = await enqueue("'job:new', queue => 'vip', delay => '1 minute', tags => array['mail']")
    for status in (None, TaskStatus.PENDING):
        every = TaskFilter(status=status)
        for filter in ({}, {"queue": "vip"}, {"type": "job:new"}, {"tag": "mail"}):
            page = await store.list_tasks(replace(every, **filter))
            assert [t.id for t in page.tasks] == [id], (status, filter)
        for filter in ({"queue": "other"}, {"type": "job:x"}, {"tag": "x"}, {"tenant": "acme"}):
            page = await store.list_tasks(replace(every, **filter))
            assert page.tasks == [], (status, filter)


async def test_a_dead_letter_that_never_had_a_lane_is_seen(store, clock, enqueue):
    id = await enqueue("'job:new', expires => '1 second'")
    await clock.advance(2)
    await store.expire()
    (group,) = await store.dead_letter_groups()
    assert (group.type, group.error_type) == ("job:new", "Expired")
    assert await store.retry([id]) == {id}
    await finish(store, await claim_one(store), FAILED)
    assert await status_of(store, id) is TaskStatus.FAILED


# ── bad input ────────────────────────────────────────────────────────────────────────────────

BAD = {
    "a type that is no name": "'no name'",
    "no type": "null",
    "a queue that is no name": "'t', queue => 'my queue'",
    "no queue": "'t', queue => null",
    "no tenant": "'t', tenant => null",
    "a version that is no name": "'t', version => 'a b'",
    "no version": "'t', version => null",
    "a tag that is no name": "'t', tags => array['a b']",
    "a tag that is null": "'t', tags => array['a', null]",
    "too many tags": "'t', tags => array(select 'x' || n from generate_series(1, 17) n)",
    "a priority out of range": "'t', priority => 32001",
    "no priority": "'t', priority => null",
    "a negative delay": "'t', delay => '-1 second'",
    "a delay of centuries": "'t', delay => '1000 years'",
    "a delay and a time": "'t', delay => '1 second', run_at => now()",
    "a time that never comes": "'t', run_at => 'infinity'",
    "a time before all times": "'t', run_at => '-infinity'",
    "a negative expiry": "'t', expires => '-1 second'",
    "an expiry before its time": "'t', delay => '1 minute', expires => '1 minute'",
    "an expiry before a time": "'t', run_at => now() + interval '1 year', expires => '1 day'",
    "no tries": "'t', max_tries => 0",
    "arguments that are no list": "'t', args => '{}'",
    "no arguments": "'t', args => null",
    "named arguments that are no object": "'t', kwargs => '[]'",
    "an empty key": "'t', idempotency_key => ''",
    "a long key": "'t', idempotency_key => repeat('k', 256)",
    "an empty user": "'t', user_id => ''",
    "a long user": "'t', user_id => repeat('u', 201)",
    "a user with a line break": "'t', user_id => e'a\\nb'",
    "a user with a control character": "'t', user_id => 'a' || chr(155)",
    "an empty concurrency key": "'t', concurrency_key => ''",
    "a payload that is too large": "'t', args => jsonb_build_array(repeat('x', 1048577))",
    "a payload that is too deep": "'t', args => (repeat('[', 100) || repeat(']', 100))::jsonb",
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
async def test_bad_input_is_refused_and_nothing_changes(store, dump, enqueue, arguments):
    await put_one(store, "t")
    for lane in ("known", "unknown"):
        before = await dump()
        with pytest.raises(asyncpg.InvalidParameterValueError, match="holdfast: "):
            await enqueue(arguments if lane == "known" else arguments.replace("'t'", "'new'"))
        assert await dump() == before
