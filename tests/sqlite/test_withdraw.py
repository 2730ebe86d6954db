"""Taking tasks out of a long queue: one walk for all of them, none for who cannot be there."""

from collections import Counter
from datetime import timedelta

from holdfast.tasks.task import TaskStatus
from tests.contract.acts import MINUTE, claim, claim_one, finish, ids_of, put, status_of
from tests.sqlite.acts import heard

WALKS = ("withdraw.in_ready", "withdraw.in_blocked")


def _walks(names):
    return {name: n for name, n in Counter(names).items() if name in WALKS}


async def test_all_of_one_lane_and_priority_are_found_in_one_walk(store, monkeypatch):
    ids = await put(store, 300)
    urgent = await put(store, 20, priority=5)
    with heard(monkeypatch) as names:
        answer = await store.cancel(ids[50:250] + urgent[5:15])
    assert set(answer.values()) == {"cancelled"}
    assert _walks(names) == {"withdraw.in_ready": 2}
    assert ids_of(await claim(store, 1000)) == urgent[:5] + urgent[15:] + ids[:50] + ids[250:]


async def test_all_behind_one_key_are_found_in_one_walk(store, monkeypatch):
    ids = await put(store, 50, concurrency_key="k")
    with heard(monkeypatch) as names:
        await store.cancel(ids[10:40])
    assert _walks(names) == {"withdraw.in_blocked": 1}
    assert ids_of(await claim(store, 1000)) == ids[:10] + ids[40:]


async def test_who_was_let_in_behind_a_key_is_found(store):
    ids = await put(store, 3, concurrency_key="k")
    held = await claim_one(store)
    answer = await store.cancel(ids)
    assert answer[held.lease.task] == "requested"
    assert list(answer.values()).count("cancelled") == 2
    await finish(store, held)


async def test_nobody_walks_for_what_is_held_has_ended_or_waits_for_its_time(store, monkeypatch):
    ids = await put(store, 4)
    held, done = await claim(store, 2)
    await finish(store, done)
    later = await put(store, 2, delay=MINUTE)
    with heard(monkeypatch) as names:
        answer = await store.cancel([held.lease.task, done.lease.task, *later])
    assert [answer[id] for id in later] == ["cancelled"] * 2
    assert answer[held.lease.task] == "requested"
    assert _walks(names) == {}
    assert ids_of(await claim(store)) == ids[2:]


async def test_expiry_does_not_walk_for_what_runs(store, clock, monkeypatch):
    ids = await put(store, 3, expires=timedelta(seconds=10))
    await claim(store, 3, lease=timedelta(hours=1))
    clock.advance(11)
    with heard(monkeypatch) as names:
        assert await store.expire() == []
    assert _walks(names) == {}
    assert await status_of(store, ids[0]) is TaskStatus.RUNNING


async def test_expiry_ends_what_waits_beside_what_runs(store, clock):
    running, waiting = await put(store, 2, expires=timedelta(seconds=10))
    await claim_one(store, lease=timedelta(hours=1))
    clock.advance(11)
    assert [one.task for one in await store.expire()] == [waiting]
    assert await status_of(store, waiting) is TaskStatus.FAILED
    assert await status_of(store, running) is TaskStatus.RUNNING
