"""A claim whose answer was lost, asked again: it answers what it took, and takes nothing more."""

from datetime import timedelta

from holdfast.ids import new_grant
from tests.contract.acts import MINUTE, OTHER, WORKER, finish, lanes_of, put, put_one, retry


async def _ask(store, grant, *, worker=WORKER, want=2):
    return await store.claim(
        worker=worker, lanes=await lanes_of(store), want=want, lease=MINUTE, grant=grant
    )


async def test_it_answers_exactly_what_it_took(store):
    await put(store, 6)
    grant = new_grant()
    first = await _ask(store, grant)
    again = await _ask(store, grant)
    assert again.tasks == first.tasks
    assert again.grant == grant
    assert await store.claimed(worker=WORKER, grant=grant) == first.tasks
    assert len((await _ask(store, new_grant(), want=10)).tasks) == 4


async def test_it_answers_everything_that_a_claim_tells(store):
    parent = await put_one(store, priority=9)
    await put_one(store, max_tries=7, parent=parent, expires=timedelta(hours=1))
    await put_one(store, priority=-3)
    grant = new_grant()
    first = await _ask(store, grant, want=3)
    assert (await _ask(store, grant, want=3)).tasks == first.tasks
    assert {task.max_tries for task in first.tasks} == {None, 7}


async def test_it_answers_only_what_it_still_holds(store):
    await put(store, 3)
    grant = new_grant()
    first, second = (await _ask(store, grant)).tasks
    await finish(store, first, retry())
    assert (await _ask(store, grant)).tasks == [second]


async def test_another_workers_grant_is_not_taken_for_ones_own(store):
    await put(store, 4)
    grant = new_grant()
    first = await _ask(store, grant)
    other = await _ask(store, grant, worker=OTHER)
    assert len({task.lease.task for task in first.tasks + other.tasks}) == 4
