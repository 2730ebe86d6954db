"""Pause and resume: a paused queue gives nothing, and nobody else waits."""

import pytest

from holdfast.errors import InvalidInput
from tests.contract.acts import ask, claim, claim_one, draft, finish, ids_of, put, put_one


async def test_a_paused_queue_gives_nothing(store):
    await put(store, 3, queue="paused")
    other = await put_one(store, queue="open")
    await store.pause("paused")
    assert ids_of(await claim(store)) == [other]


async def test_a_resumed_queue_gives_all(store):
    ids = await put(store, 3, queue="q")
    await store.pause("q")
    assert await claim(store) == []
    await store.resume("q")
    assert ids_of(await claim(store)) == ids


async def test_a_lane_that_comes_later_inherits_the_pause(store):
    await store.pause("q")
    await put_one(store, queue="q")
    await put_one(store, "job:other", queue="q", tenant="acme", tags=("x",))
    assert await claim(store) == []
    await store.resume("q")
    assert len(await claim(store)) == 2


async def test_a_paused_queue_takes_tasks_in(store):
    await put_one(store, queue="q")
    await store.pause("q")
    assert await store.enqueue([draft(queue="q")])
    (load,) = await store.queue_loads()
    assert (load.queue, load.paused, load.ready) == ("q", True, 2)


async def test_what_runs_when_its_queue_is_paused_goes_on(store):
    await put_one(store, queue="q")
    claimed = await claim_one(store)
    await store.pause("q")
    await finish(store, claimed)


async def test_pausing_twice_is_pausing_once(store):
    await put_one(store, queue="q")
    await store.pause("q")
    await store.pause("q")
    await store.resume("q")
    assert len(await claim(store)) == 1


async def test_a_pause_tells_the_workers_to_look_again(store):
    await put_one(store, queue="q")
    before = (await ask(store, 1)).lanes
    await store.pause("q")
    paused = (await ask(store, 1)).lanes
    await store.resume("q")
    assert before < paused < (await ask(store, 1)).lanes


async def test_a_paused_queue_is_neither_full_nor_contended(store):
    await put_one(store, queue="q")
    await store.pause("q")
    answer = await ask(store)
    assert (answer.tasks, answer.full, answer.contended) == ([], False, None)


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_name_that_is_none_is_refused(store, dump, verb):
    before = await dump()
    with pytest.raises(InvalidInput, match="is not a name"):
        await getattr(store, verb)("no name")
    assert await dump() == before
