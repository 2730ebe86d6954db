"""History: every attempt can be read back; what happened is streamed in order, none left out."""

import asyncio

import pytest

from holdfast.answers import Event, WorkerRecord
from holdfast.errors import InvalidInput
from holdfast.ids import new_id
from holdfast.tasks.lifecycle import Verdict
from tests.contract.acts import (
    BOOM,
    CANCELLED,
    DONE,
    FAILED,
    HANDED_BACK,
    OTHER,
    WORKER,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    seconds,
    snoozed,
    waiting,
)


async def test_attempts_are_read_back_in_order_with_all_that_is_known_of_them(store, clock):
    await store.register(WorkerRecord(id=WORKER, name="host-a:17"))
    id = await put_one(store, max_tries=9)
    start = (await store.get(id)).created_at
    for end in (retry(), snoozed(1), HANDED_BACK, waiting(timer=1)):
        claimed = await claim_one(store)
        await clock.advance(2)
        await finish(store, claimed, end)
        await clock.advance(2)
    await claim_one(store, worker=OTHER)
    await clock.advance(61)
    await store.recover()
    await claim_one(store)

    attempts = await store.attempts(id)
    assert [a.ended for a in attempts] == [
        "retry",
        "snoozed",
        "handed_back",
        "waiting",
        "lost",
        None,
    ]
    assert [a.fence for a in attempts] == [1, 2, 3, 4, 5, 6]
    assert [a.by for a in attempts] == [*["holder"] * 4, "recovery", None]
    assert [a.worker for a in attempts] == [WORKER] * 4 + [OTHER, WORKER]
    assert [a.worker_name for a in attempts] == ["host-a:17"] * 4 + [None, "host-a:17"]
    assert [(a.started_at - start) / seconds(1) for a in attempts] == [0, 4, 8, 12, 16, 77]
    assert [(a.ended_at - a.started_at) / seconds(1) for a in attempts[:5]] == [2, 2, 2, 2, 61]
    assert attempts[0].failure == BOOM
    assert [a.failure for a in attempts[1:4]] == [None] * 3
    assert (attempts[5].ended_at, attempts[5].failure) == (None, None)
    for attempt in attempts:
        assert await store.attempts(id, fence=attempt.fence) == [attempt]


@pytest.mark.parametrize("end", [DONE, FAILED, CANCELLED], ids=lambda s: s.verdict.value)
async def test_the_last_attempt_is_the_one_that_ended_the_task(store, end):
    id = await put_one(store)
    await finish(store, await claim_one(store), retry())
    await finish(store, await claim_one(store), end)
    first, last = await store.attempts(id)
    assert (first.ended, last.ended, last.by) == ("retry", end.verdict.value, "holder")
    assert last.failure == end.failure
    assert await store.attempts(id, fence=2) == [last]


async def test_a_task_that_never_started_has_no_attempts(store):
    id = await put_one(store)
    assert await store.attempts(id) == []


async def test_every_end_of_an_attempt_is_an_event(store, clock):
    id = await put_one(store, max_tries=9)
    for end in (retry(), snoozed(0), HANDED_BACK, waiting(timer=0), DONE):
        await finish(store, await claim_one(store), end)
    events = await store.events()
    assert [e.kind for e in events] == ["retry", "snoozed", "handed_back", "waiting", "done"]
    assert [e.fence for e in events] == [1, 2, 3, 4, 5]
    assert {(e.task, e.worker, e.by) for e in events} == {(id, WORKER, "holder")}
    assert [e.error for e in events] == ["it broke", None, None, None, None]
    assert [e.seq for e in events] == sorted({e.seq for e in events})


async def test_an_end_without_an_attempt_is_an_event_too(store, clock):
    cancelled = await put_one(store)
    expired = await put_one(store, expires=seconds(5))
    await store.cancel([cancelled])
    await clock.advance(6)
    await store.expire()
    first, second = await store.events()
    assert (first.task, first.kind, first.by, first.worker) == (
        cancelled,
        "cancelled",
        "operator",
        None,
    )
    assert (second.task, second.kind, second.by) == (expired, "failed", "operator")
    assert [a.ended for a in await store.attempts(cancelled)] == ["cancelled"]


async def test_events_are_resumed_from_the_last_one_seen(store):
    ids = await put(store, 10)
    await finish(store, await claim(store))
    seen: list[Event] = []
    while page := await store.events(after=seen[-1].seq if seen else 0, limit=3):
        assert len(page) <= 3
        seen += page
    assert sorted(e.task for e in seen) == sorted(ids)
    assert await store.events(after=seen[-1].seq) == []


async def test_a_page_of_events_is_bounded(store):
    for limit in (0, 1001):
        with pytest.raises(InvalidInput, match="1 to 1000"):
            await store.events(limit=limit)


async def test_a_reader_that_follows_misses_nothing_of_many_writers(store, keeper):
    ids = await put(store, 200)
    seen: list[Event] = []

    async def write(worker: int) -> None:
        own = keeper.store()
        while claimed := await claim(own, 4, worker=worker):
            await finish(own, claimed[:3], DONE)
            await finish(own, claimed[3:], FAILED)

    async def follow() -> None:
        while len(seen) < len(ids):
            seen.extend(await store.events(after=seen[-1].seq if seen else 0, limit=17))
            await asyncio.sleep(0)  # a store without threads never lets the others run

    async with asyncio.timeout(60):
        await asyncio.gather(follow(), *(write(n) for n in range(5)))
    assert [e.seq for e in seen] == sorted({e.seq for e in seen})
    assert sorted(e.task for e in seen) == sorted(ids)


async def test_refused_writes_stand_among_the_events_in_their_place(store, clock):
    id = await put_one(store)
    zombie = await claim_one(store)
    await clock.advance(61)
    await store.recover()
    await store.settle([(zombie.lease, DONE)])
    await finish(store, await claim_one(store, worker=OTHER))
    assert [(e.kind, e.verb) for e in await store.events()] == [
        ("lost", None),
        ("refused", "settle"),
        ("done", None),
    ]
    assert [a.ended for a in await store.attempts(id)] == ["lost", "done"]


async def test_the_history_of_nobody_is_empty(store):
    assert await store.attempts(new_id()) == []
    assert await store.events() == []
    assert len({v.value for v in Verdict}) == 8
