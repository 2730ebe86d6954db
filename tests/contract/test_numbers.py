"""Numbers for people: how much waits, runs and failed, and why."""

import pytest

from holdfast.answers import QueueLoad
from holdfast.errors import InvalidInput
from holdfast.stores import views
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Failure
from tests.contract.acts import (
    DONE,
    FAILED,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    seconds,
    waiting,
)


def _load(queue: str, **numbers) -> QueueLoad:
    nothing = dict.fromkeys(
        ("ready", "scheduled", "blocked", "waiting", "running", "expired", "failed"), 0
    )
    usual = {"paused": False, "oldest_age": None, "capped": False}
    return QueueLoad(queue=queue, **{**nothing, **usual, **numbers})


async def test_a_store_without_queues_has_no_load(store):
    assert await store.queue_loads() == []


async def test_each_queue_says_what_waits_runs_and_failed(store, clock):
    await store.limit("type", "job:keyed", Limit(max_per_key=1))
    await put(store, 2, "job:keyed", queue="a", concurrency_key="k")
    held = await claim(store, lease=seconds(5))
    await put(store, 3, queue="a")
    failed, done, wait = await claim(store, lease=seconds(60))
    await finish(store, failed, FAILED)
    await finish(store, done, DONE)
    await finish(store, wait, waiting())
    await put(store, 2, queue="a")
    await put(store, 4, queue="a", delay=seconds(600))
    await put_one(store, queue="b")
    await store.pause("b")
    await clock.advance(10)
    assert await store.queue_loads() == [
        _load(
            "a",
            ready=2,
            scheduled=4,
            blocked=1,
            waiting=1,
            running=1,
            expired=1,
            failed=1,
            oldest_age=pytest.approx(10, abs=0.01),
        ),
        _load("b", paused=True, ready=1, oldest_age=pytest.approx(10, abs=0.01)),
    ]
    await finish(store, held)


async def test_the_oldest_task_of_all_lanes_gives_the_age(store, clock):
    await put_one(store, queue="q", tenant="a")
    await clock.advance(20)
    await put_one(store, queue="q", tenant="b", priority=5)
    await clock.advance(5)
    (load,) = await store.queue_loads()
    assert load.oldest_age == pytest.approx(25, abs=0.01)


async def test_counts_stop_at_their_cap(store, monkeypatch):
    monkeypatch.setattr(views, "CAP", 3)
    await put(store, 5, queue="a")
    await put(store, 2, queue="b", delay=seconds(60))
    a, b = await store.queue_loads()
    assert (a.ready, a.capped) == (3, True)
    assert (b.scheduled, b.capped) == (2, False)


def _broken(type: str, message: str) -> Settlement:
    return Settlement(verdict=Verdict.FAILED, failure=Failure(type=type, message=message))


async def test_dead_letters_that_look_alike_are_one_group(store, clock):
    await put(store, 3, "job:a")
    await put(store, 1, "job:b")
    first, second, third, other = await claim(store)
    await finish(store, first, _broken("Timeout", "after 30 s"))
    await finish(store, second, _broken("Timeout", "after 30 s"))
    await clock.advance(5)
    await finish(store, third, _broken("Refused", "no"))
    await finish(store, other, _broken("Timeout", "after 30 s"))
    groups = await store.dead_letter_groups()
    assert [(g.type, g.error_type, g.error, g.count) for g in groups] == [
        ("job:a", "Timeout", "after 30 s", 2),
        ("job:a", "Refused", "no", 1),
        ("job:b", "Timeout", "after 30 s", 1),
    ]
    assert groups[1].newest - groups[0].newest == seconds(5)
    assert len(await store.dead_letter_groups(limit=2)) == 2


async def test_what_succeeded_or_was_replayed_is_no_dead_letter(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    await put_one(store)
    await finish(store, await claim_one(store), DONE)
    await store.retry([id])
    assert await store.dead_letter_groups() == []


async def test_lists_for_people_are_bounded(store):
    for ask in (store.leases, store.dead_letter_groups):
        with pytest.raises(InvalidInput, match="1 to 1000"):
            await ask(limit=0)
