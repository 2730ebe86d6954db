"""What happened to one task, and how far the events of all of them have come."""

import asyncio

import pytest

from holdfast.errors import InvalidInput
from holdfast.ids import new_id
from tests.contract.acts import (
    DONE,
    FAILED,
    OTHER,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    seconds,
)


async def test_the_events_of_a_task_are_those_of_all_that_are_its_own(store, clock):
    id, other = await put(store, 2, max_tries=3)
    first, second = await claim(store)
    await finish(store, [first, second], retry())
    late = await claim_one(store, lease=seconds(1))
    await clock.advance(2)
    await store.recover()
    await finish(store, await claim(store, worker=OTHER), FAILED)
    assert await store.settle([(late.lease, DONE)]) == {late.lease.task}
    await store.retry([id])
    every = await store.events()
    for task in (id, other):
        page = await store.task_events(task)
        assert list(page) == [event for event in every if event.task == task]
        assert page.last == page[-1].seq
    told = [event.kind for event in await store.task_events(late.lease.task)]
    assert told == ["retry", "lost", "failed", "refused"]


async def test_they_are_read_page_by_page(store):
    id = await put_one(store, max_tries=5)
    for _ in range(4):
        await put_one(store, "job:other")
        await finish(store, await claim(store), retry())
    every = await store.task_events(id)
    assert len(every) == 4
    first = await store.task_events(id, limit=3)
    rest = await store.task_events(id, first.last, 3)
    assert [*first, *rest] == list(every)
    last = await store.task_events(id, rest.last)
    assert (list(last), last.last) == ([], rest.last)
    nothing = await store.task_events(new_id(), 7)
    assert (list(nothing), nothing.last) == ([], 7)
    with pytest.raises(InvalidInput):
        await store.task_events(id, limit=0)


async def test_the_newest_number_is_where_a_follower_begins(store):
    assert await store.newest_event() == 0
    ids = await put(store, 3)
    for verdict in (DONE, FAILED, retry()):
        await finish(store, await claim_one(store), verdict)
        assert await store.newest_event() == (await store.events()).last
    await store.cancel(ids[2:])
    newest = await store.newest_event()
    assert newest == (await store.events()).last
    await put_one(store)
    assert list(await store.events(newest)) == []
    await finish(store, await claim_one(store), DONE)
    assert [event.kind for event in await store.events(newest)] == ["done"]


async def test_whoever_holds_a_smaller_number_is_waited_for(store, keeper):
    """Numbers are given out before they are committed: nobody may begin behind one that comes."""
    if store.one_writer:
        pytest.skip("numbers come in the order of the commits here")
    await put(store, 2)
    slow, quick = await claim(store)
    began, go = asyncio.Event(), asyncio.Event()

    async def settle_slowly() -> None:
        async with store.transaction() as conn:
            await store.settle([(slow.lease, DONE)], conn=conn)
            began.set()
            await go.wait()

    settling = asyncio.create_task(settle_slowly())
    await began.wait()
    await finish(store, quick, DONE)
    asked = asyncio.create_task(store.newest_event())
    history = asyncio.create_task(store.task_events(quick.lease.task))
    done, _ = await asyncio.wait({asked, history}, timeout=0.2)
    assert not done, "somebody may still come in between"
    go.set()
    await settling
    newest = await asked
    assert list(await store.events(newest)) == []
    assert (await history).last == newest
