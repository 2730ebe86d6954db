"""Children that run on although their parents have ended: found, in bounded looks."""

from datetime import timedelta

from tests.contract.acts import CANCELLED, DONE, FAILED, claim_one, draft, finish, put, put_one

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
