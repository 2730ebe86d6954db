"""Changing a task that has not begun: what is seen is changed, and only before a worker has it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import InvalidInput, UnknownTask
from holdfast.ids import new_id
from holdfast.tasks.edit import Edit
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    FAILED,
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


async def test_a_higher_priority_goes_first(store):
    first, second = await put(store, 2)
    assert await store.edit(second, Edit(priority=7)) == "edited"
    assert (await store.get(second)).priority == 7
    assert ids_of(await claim(store)) == [second, first]


async def test_a_lower_priority_goes_last(store):
    first, second = await put(store, 2)
    assert await store.edit(first, Edit(priority=-1)) == "edited"
    assert ids_of(await claim(store)) == [second, first]


async def test_another_queue_stands_behind_those_who_wait_there(store):
    moved = await put_one(store)
    there = await put_one(store, queue="mail")
    assert await store.edit(moved, Edit(queue="mail", tags=("eu", "vip"))) == "edited"
    task = await store.get(moved)
    assert (task.queue, task.tags, task.type) == ("mail", ("eu", "vip"), TYPE)
    taken = await claim(store)
    assert ids_of(taken) == [there, moved]
    assert taken[1].lane.queue == "mail"


async def test_requirements_can_be_lifted(store):
    id = await put_one(store, requires=("tpu",))
    assert await claim(store) == []
    assert await store.edit(id, Edit(requires=())) == "edited"
    assert ids_of(await claim(store)) == [id]


async def test_a_task_can_be_put_off_and_brought_forward(store, clock):
    id = await put_one(store)
    assert await store.edit(id, Edit(delay=seconds(60))) == "edited"
    assert await claim(store) == []
    await clock.advance(61)
    assert ids_of(await claim(store)) == [id]
    other = await put_one(store, delay=seconds(3600))
    assert await store.edit(other, Edit(delay=seconds(0))) == "edited"
    assert ids_of(await claim(store)) == [other]


async def test_an_instant_says_when_as_well(store, clock):
    id = await put_one(store)
    at = (await store.get(id)).created_at + timedelta(days=400, microseconds=1)
    assert await store.edit(id, Edit(run_at=at)) == "edited"
    assert (await store.get(id)).run_at == at
    assert await claim(store) == []
    await clock.advance(500 * 86_400)
    assert ids_of(await claim(store)) == [id]


async def test_what_waits_for_its_time_keeps_it_with_another_priority(store, clock):
    id = await put_one(store, delay=seconds(60))
    due = (await store.get(id)).run_at
    assert await store.edit(id, Edit(priority=3, queue="mail")) == "edited"
    task = await store.get(id)
    assert (task.run_at, task.priority, task.queue) == (due, 3, "mail")
    assert await claim(store) == []
    await clock.advance(61)
    assert ids_of(await claim(store)) == [id]


async def test_more_tries_cost_no_place_in_line(store):
    first, second = await put(store, 2, max_tries=1)
    assert await store.edit(first, Edit(max_tries=2)) == "edited"
    taken = await claim(store)
    assert ids_of(taken) == [first, second]
    await finish(store, taken, retry())
    assert await status_of(store, first) is TaskStatus.PENDING
    assert await status_of(store, second) is TaskStatus.FAILED
    assert await store.edit(first, Edit(max_tries=None)) == "edited"
    assert (await store.get(first)).max_tries is None


async def test_an_expiry_is_set_moved_and_lifted(store, clock):
    id, other = await put(store, 2)
    assert await store.edit(id, Edit(expires=seconds(10))) == "edited"
    assert await store.edit(other, Edit(expires=seconds(10))) == "edited"
    assert await store.edit(other, Edit(expires=seconds(100))) == "edited"
    await clock.advance(11)
    assert [one.task for one in await store.expire()] == [id]
    assert await status_of(store, id) is TaskStatus.FAILED
    assert await store.edit(other, Edit(expires=None)) == "edited"
    assert (await store.get(other)).expires_at is None
    await clock.advance(1000)
    assert not await store.expire()
    assert ids_of(await claim(store)) == [other]


async def test_what_has_expired_is_not_changed_any_more(store, clock, dump):
    id = await put_one(store, expires=seconds(10))
    await clock.advance(11)
    before = await dump()
    assert await store.edit(id, Edit(expires=None, priority=1)) == "begun"
    assert await dump() == before


async def test_what_runs_waits_or_has_ended_is_left_alone(store, dump):
    held, put_down, ended, stopped = await put(store, 4)
    taken = {c.lease.task: c for c in await claim(store, 3)}
    await finish(store, taken[put_down], waiting())
    await finish(store, taken[ended], FAILED)
    await store.cancel([stopped])
    before = await dump()
    for id in (held, put_down, ended, stopped):
        assert await store.edit(id, Edit(priority=1, delay=seconds(5))) == "begun"
    assert await dump() == before
    with pytest.raises(UnknownTask):
        await store.edit(new_id(), Edit(priority=1))


async def test_what_is_asked_to_cancel_is_left_alone(store, keeper, dump):
    id = await put_one(store)
    await keeper.driver.call("request_cancel", ids=[id], rule="asked")  # and not withdrawn yet
    before = await dump()
    assert await store.edit(id, Edit(delay=seconds(3600))) == "begun"
    assert await dump() == before
    assert await store.cancel([id]) == {id: "cancelled"}


async def test_a_retry_that_waits_keeps_its_tries(store):
    id = await put_one(store, max_tries=3)
    await finish(store, await claim_one(store), retry(after=60))
    assert await store.edit(id, Edit(delay=seconds(0), queue="mail")) == "edited"
    again = await claim_one(store)
    assert (again.lease.task, again.tries, again.lease.fence) == (id, 2, 2)


async def test_tries_are_never_fewer_than_it_has_had(store, dump):
    id = await put_one(store, max_tries=5)
    seen = await store.get(id)
    await finish(store, await claim_one(store), retry())
    with pytest.raises(InvalidInput, match="tried once already"):
        await store.edit(id, Edit(max_tries=1))
    await finish(store, await claim_one(store), retry())
    before = await dump()
    for fewer in (1, 2):
        with pytest.raises(InvalidInput, match="tried 2 times already"):
            await store.edit(id, Edit(max_tries=fewer))
        assert await store._edit(seen, Edit(max_tries=fewer)) == "changed", (
            "tried since it was read"
        )
    assert await dump() == before
    assert await store.edit(id, Edit(max_tries=3)) == "edited"


async def test_of_two_who_saw_the_same_one_is_refused(store, dump):
    id = await put_one(store)
    seen = await store.get(id)
    assert await store.edit(id, Edit(priority=5), seen=seen) == "edited"
    before = await dump()
    for edit in (Edit(priority=9), Edit(max_tries=9), Edit(queue="mail"), Edit(expires=None)):
        assert await store.edit(id, edit, seen=seen) == "changed"
    assert await dump() == before
    assert await store.edit(id, Edit(priority=9), seen=await store.get(id)) == "edited"


OTHERS = {
    "priority": Edit(priority=1),
    "queue": Edit(queue="mail"),
    "tries": Edit(max_tries=9),
    "expiry": Edit(expires=seconds(50)),
    "time": Edit(delay=seconds(50)),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_what_changed_between_the_look_and_the_write_is_not_overwritten(
    store, keeper, other, monkeypatch
):
    id = await put_one(store)
    seen = await store.get(id)
    look, quicker = store.get, keeper.store()

    async def get(task):
        found = await look(task)
        await quicker.edit(id, OTHERS[other])
        return found

    with monkeypatch.context() as slow:
        slow.setattr(store, "get", get)
        assert await store.edit(id, Edit(tags=("late",)), seen=seen) == "changed"
    assert (await store.get(id)).tags == ()


async def test_edits_of_many_at_once_are_all_done(store, keeper):
    id = await put_one(store)
    edits = [Edit(queue="mail"), Edit(tags=("vip",)), Edit(priority=4), Edit(max_tries=8)]
    stores = [keeper.store() for _ in edits]
    asked = (one.edit(id, edit) for one, edit in zip(stores, edits, strict=True))
    assert await asyncio.gather(*asked) == ["edited"] * 4
    task = await store.get(id)
    assert (task.queue, task.tags, task.priority, task.max_tries) == ("mail", ("vip",), 4, 8)
    assert ids_of(await claim(store)) == [id]


async def test_a_key_lets_in_as_many_as_before(store):
    await store.limit("type", TYPE, Limit(max_per_key=1))
    first, second, third = await put(store, 3, concurrency_key="k")
    taken = await claim_one(store)
    assert taken.lease.task == first
    assert await store.edit(third, Edit(priority=9)) == "edited"  # behind its key
    await finish(store, taken)
    taken = await claim_one(store)
    assert taken.lease.task == third
    assert await claim(store) == []
    await finish(store, taken)
    assert ids_of(await claim(store)) == [second]


async def test_what_was_let_in_by_its_key_makes_room_when_it_is_put_off(store, clock):
    await store.limit("type", TYPE, Limit(max_per_key=2))
    first, second, third = await put(store, 3, concurrency_key="k")
    taken = await claim_one(store)
    assert taken.lease.task == first
    assert await store.edit(second, Edit(delay=seconds(60))) == "edited"  # it stood in line
    held = await claim(store)
    assert ids_of(held) == [third]
    await clock.advance(61)
    assert await claim(store) == []
    await finish(store, [taken, *held])
    assert ids_of(await claim(store)) == [second]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({}, "say what to change"),
        ({"priority": 99_999}, "priority"),
        ({"queue": "a b"}, "queue"),
        ({"tags": ("b", "a")}, "sorted"),
        ({"max_tries": 0}, "max_tries"),
        ({"delay": timedelta(seconds=-1)}, "negative"),
        ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"delay": timedelta(1), "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "instead of a delay"),
        ({"expires": timedelta(days=99_999)}, "100 years"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_born(wish, words):
    with pytest.raises(InvalidInput, match=words):
        Edit(**wish)
