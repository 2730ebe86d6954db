"""Children that run on although their parents have ended: found, in bounded looks."""

from datetime import timedelta

import pytest

from holdfast.tasks.limits import Limit
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    claim,
    claim_one,
    draft,
    finish,
    ids_of,
    put,
    put_one,
    snoozed,
    status_of,
    waiting,
)

AT_ONCE = timedelta(0)


async def test_open_children_of_a_parent_that_has_ended_are_found(store):
    parent = await put_one(store)
    held = await claim_one(store)
    waiting = await put(store, 2, "job:child", parent=parent)
    (delayed,) = await put(store, 1, "job:child", parent=parent, delay=timedelta(hours=1))
    (keyed,) = await put(store, 1, "job:child", parent=parent, concurrency_key="k")
    assert (await store.orphans(quiet=AT_ONCE)).tasks == []
    running = await claim_one(store)
    await finish(store, held, FAILED)
    found = await store.orphans(quiet=AT_ONCE)
    assert set(found.tasks) == {*waiting, delayed, keyed}
    assert running.lease.task in found.tasks
    assert found.last is None
    await store.cancel(found.tasks)
    await finish(store, running, CANCELLED)
    assert (await store.orphans(quiet=AT_ONCE)).tasks == []


async def test_a_parent_that_has_just_ended_is_left_to_its_worker(store):
    parent = await put_one(store)
    held = await claim_one(store)
    await put(store, 1, "job:child", parent=parent)
    await finish(store, held, DONE)
    assert (await store.orphans(quiet=timedelta(minutes=5))).tasks == []


async def test_tasks_without_a_parent_are_nobodys_orphans(store):
    await put_one(store)
    held = await claim_one(store)
    await put(store, 3)
    await finish(store, held, DONE)
    found = await store.orphans(quiet=AT_ONCE)
    assert (found.tasks, found.last) == ([], None)


async def test_a_child_with_a_new_life_of_its_own_is_no_orphan(store):
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    await finish(store, await claim_one(store), FAILED)
    await finish(store, held, FAILED)
    assert await store.retry([child])
    assert (await store.orphans(quiet=AT_ONCE)).tasks == []


async def test_a_child_whose_key_others_may_share_is_no_orphan(store):
    parent = await put_one(store)
    held = await claim_one(store)
    await put(store, 1, "job:child", parent=parent, key="k")
    await finish(store, held, DONE)
    assert (await store.orphans(quiet=AT_ONCE)).tasks == []


async def test_a_look_is_bounded_and_goes_on_behind_the_last(store):
    parent = await put_one(store)
    held = await claim_one(store)
    children = [draft("job:child", parent=parent) for _ in range(5)]
    await store.enqueue(children)
    await finish(store, held, DONE)
    found, after = [], None
    for _ in range(3):
        look = await store.orphans(after, quiet=AT_ONCE, batch=2)
        found += look.tasks
        after = look.last
    assert after is None
    assert found == [child.id for child in children]


async def test_what_an_ended_parent_left_is_cancelled_unless_its_next_life_took_it_up(store):
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    assert await store.cancel([child], left=True) == {child: "unknown"}  # it may be waited for
    assert await status_of(store, child) is TaskStatus.PENDING
    await finish(store, held, FAILED)
    assert await store.retry([parent])
    await store.cancel([child], left=True)
    assert await status_of(store, child) is TaskStatus.PENDING
    again = next(claimed for claimed in await claim(store) if claimed.lease.task == parent)
    await finish(store, again, FAILED)
    assert await store.cancel([child], left=True) == {child: "requested"}


@pytest.mark.parametrize("place", ["later", "ready", "blocked"])
async def test_who_is_revived_while_it_is_cancelled_is_not_withdrawn(store, monkeypatch, place):
    """The request is of its former life."""
    if place == "blocked":
        await store.limit("type", "job:child", Limit(max_per_key=1))
    key = "acme" if place == "blocked" else None
    parent = await put_one(store)
    held = await claim_one(store)
    child, other = await put(store, 2, "job:child", parent=parent, concurrency_key=key)
    running = await claim_one(store)
    await finish(store, held, FAILED)
    real = store._withdraw

    async def withdraw(ids):
        await finish(store, running, FAILED)
        if place == "blocked":
            assert ids_of(await claim(store)) == [other]  # so the key is taken
        assert await store.retry([parent, child]) == {parent, child}
        await store.promote()
        if place == "later":
            again = next(claimed for claimed in await claim(store) if claimed.lease.task == child)
            await finish(store, again, snoozed(60))
        return await real(ids)

    monkeypatch.setattr(store, "_withdraw", withdraw)
    await store.cancel([child, other], left=True)
    assert not (found := await store.get(child)).cancel_requested
    assert found.status is TaskStatus.PENDING


async def test_children_of_what_was_taken_up_are_nobodys_to_cancel(store):
    """The parent was given a new life between the cancel of its child and the look below that."""
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    (below,) = await put(store, 1, "job:below", parent=child)
    await finish(store, held, FAILED)
    await store.cancel_below([child], left=True)
    assert await status_of(store, below) is TaskStatus.PENDING
    await store.cancel([child], left=True)
    assert await status_of(store, below) is TaskStatus.CANCELLED


async def test_a_cancel_that_comes_after_the_retry_reaches_nobody_below(store):
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    (below,) = await put(store, 1, "job:below", parent=child)
    await finish(store, held, FAILED)
    assert await store.retry([parent])
    await store.cancel([child], left=True)
    assert [await status_of(store, id) for id in (child, below)] == [TaskStatus.PENDING] * 2


async def test_a_cancel_that_came_too_late_is_not_asked_for_again(store, monkeypatch):
    """It waited, paused perhaps, for somebody to take it and to hear of that."""
    task = await put_one(store)
    held = await claim_one(store)
    real = store._withdraw

    async def withdraw(ids):
        await finish(store, held, FAILED)
        assert await store.retry([task])
        return await real(ids)

    monkeypatch.setattr(store, "_withdraw", withdraw)
    await store.cancel([task])
    assert not (await store.get(task)).cancel_requested


async def test_what_a_child_is_revived_for_is_not_cancelled_below_it(store, monkeypatch):
    """Between the look for what is below and the request for that."""
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    running = await claim_one(store)
    (below,) = await put(store, 1, "job:below", parent=child)
    (lowest,) = await put(store, 1, "job:lowest", parent=below)
    await finish(store, running, waiting())
    await finish(store, held, FAILED)
    real = store._call

    async def call(verb, **asked):
        rows = await real(verb, **asked)
        if verb == "open_descendants":
            assert await store.retry([parent, child]) == {parent, child}
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(store, "_call", call)
        await store.cancel([child], left=True)
    for id in (below, lowest):
        assert await status_of(store, id) is TaskStatus.PENDING
        assert not (await store.get(id)).cancel_requested
    await store.cancel([child])
    for id in (below, lowest):
        assert await status_of(store, id) is TaskStatus.CANCELLED


async def test_what_is_below_a_task_that_runs_is_cancelled_with_it(store):
    """Its parent has not ended: it was only asked to."""
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    (below,) = await put(store, 1, "job:below", parent=child)
    await store.cancel([parent])
    for id in (child, below):
        assert await status_of(store, id) is TaskStatus.CANCELLED
    await finish(store, held, CANCELLED)


async def test_what_expired_and_was_taken_up_again_keeps_its_children(store, clock):
    """Its children are cancelled by whoever found that it had expired, which may come late."""
    parent = await put_one(store, expires=timedelta(seconds=30))
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    await finish(store, held, waiting())
    await clock.advance(31)
    (expired,) = await store.expire()
    assert await store.retry([parent])
    await store.cancel_below([expired.task])
    assert await status_of(store, child) is TaskStatus.PENDING
