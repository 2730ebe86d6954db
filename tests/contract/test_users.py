"""For whom a task runs: kept with it wherever it goes, and found by it."""

from uuid import UUID

import pytest

from holdfast.answers import Step, TaskFilter
from holdfast.errors import InvalidInput
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    DONE,
    FAILED,
    HANDED_BACK,
    WORKER,
    anew,
    ask,
    claim,
    claim_one,
    draft,
    finish,
    put,
    put_one,
    retry,
    seconds,
    waiting,
)

ASK = Step(position=0, kind="ask.child", name="work", value=b"{}")
ANN = "Ann O'Neill <ann@example.com> ü😀"


async def _listed(store, limit: int = 2, **filter) -> list[UUID]:
    """All that a walk over the list finds, in its order."""
    found, cursor = [], None
    while True:
        page = await store.list_tasks(TaskFilter(**filter), cursor=cursor, limit=limit)
        found += [task.id for task in page.tasks]
        if (cursor := page.next) is None:
            return found


async def test_whoever_claims_or_looks_sees_for_whom_a_task_runs(store):
    hers, nobodys = await store.enqueue([draft(user_id=ANN), draft()])
    seen = await store.get_many([hers, nobodys])
    assert (seen[hers].user_id, seen[nobodys].user_id) == (ANN, None)
    taken = {task.lease.task: task.user_id for task in await claim(store)}
    assert taken == {hers: ANN, nobodys: None}


@pytest.mark.parametrize("others", [{}, {"max_tries": 2}, {"expires": seconds(60)}])
async def test_a_claim_of_several_rounds_gives_each_task_its_own_user(store, others):
    drafts = [
        draft(
            priority=n % 3,
            queue=f"q{n % 2}",
            user_id=f"u{n}" if n % 4 else None,
            **(others if n % 5 else {}),
        )
        for n in range(12)
    ]
    await store.enqueue(drafts)
    taken = {task.lease.task: task.user_id for task in await claim(store)}
    assert taken == {one.id: one.user_id for one in drafts}


async def test_a_claim_whose_answer_was_lost_is_told_again_with_the_user(store):
    await put_one(store, user_id=ANN)
    answer = await ask(store)
    (again,) = await store.claimed(worker=WORKER, grant=answer.grant)
    assert again.user_id == ANN


@pytest.mark.parametrize("many", [1, 999, 1500])  # statements with arrays, and COPY
async def test_many_come_in_with_and_without_a_user(store, many):
    drafts = [draft(user_id=f"u{n}" if n % 2 else None) for n in range(many)]
    await store.enqueue(drafts)
    users: dict[UUID, str | None] = {}
    while taken := await claim(store, 1000):
        users |= {task.lease.task: task.user_id for task in taken}
        await finish(store, taken)
    assert users == {one.id: one.user_id for one in drafts}


async def test_a_task_keeps_its_user_through_all_its_lives(store, clock):
    id = await put_one(store, user_id=ANN, max_tries=9)
    for settlement in (retry(), HANDED_BACK, anew(b"[1]"), waiting(1), FAILED):
        task = await claim_one(store)
        assert task.user_id == ANN
        await finish(store, task, settlement)
        await clock.advance(2)
        await store.promote()
        await store.sweep_wakes()
    assert await store.retry([id]) == {id}
    await claim_one(store)
    await clock.advance(61)
    assert len(await store.recover()) == 1
    task = await claim_one(store)
    assert task.user_id == ANN
    await finish(store, task, DONE)
    assert (await store.get(id)).user_id == ANN


async def test_children_are_written_with_their_own_users(store):
    parent = await put_one(store, user_id=ANN)
    lease = (await claim_one(store)).lease
    children = [draft(parent=parent, user_id=user) for user in (ANN, "bob", None)]
    await store.record(lease, [ASK], children=children)
    taken = {task.lease.task: task.user_id for task in await claim(store)}
    assert taken == {child.id: child.user_id for child in children}


async def test_the_same_key_is_one_task_whoever_it_is_for(store):
    first = await put_one(store, key="k", user_id="ann")
    assert await put_one(store, key="k", user_id="bob") == first
    assert (await store.get(first)).user_id == "ann"


async def test_it_goes_with_the_callers_transaction(store, keeper):
    asked = draft(user_id=ANN)
    async with keeper.transaction(keep=True) as conn:
        await store.enqueue([asked, draft()], conn=conn)
    assert (await store.get(asked.id)).user_id == ANN


# ── lists ────────────────────────────────────────────────────────────────────────────────────


async def test_a_users_tasks_are_listed_newest_first_and_nobody_elses(store):
    drafts = [draft(user_id=("ann", "bob", None)[n % 3], queue=f"q{n % 4}") for n in range(30)]
    await store.enqueue(drafts)
    for user in ("ann", "bob"):
        hers = [one.id for one in reversed(drafts) if one.user_id == user]
        assert await _listed(store, user_id=user) == hers
        assert await _listed(store, user_id=user, limit=100) == hers
    assert await _listed(store, user_id="Ann") == []
    queue = [d.id for d in reversed(drafts) if (d.user_id, d.queue) == ("ann", "q0")]
    assert await _listed(store, user_id="ann", queue="q0") == queue


async def test_a_users_tasks_are_listed_by_where_they_stand(store):
    await put(store, 3, user_id="bob")
    done, failed, held, parked = await put(store, 4, user_id="ann", priority=1)
    later = await put_one(store, user_id="ann", delay=seconds(60))
    ready = await put_one(store, user_id="ann")
    taken = {task.lease.task: task for task in await claim(store, 4)}
    await finish(store, taken[done], DONE)
    await finish(store, taken[failed], FAILED)
    await finish(store, taken[parked], waiting())
    stands = {"done": [done], "failed": [failed], "running": [held], "waiting": [parked]}
    for status in TaskStatus:
        found = await _listed(store, limit=1, user_id="ann", status=status)
        assert found == {"pending": [ready, later], **stands}.get(status.value, [])


async def test_a_users_tasks_that_ended_of_late_are_found_however_old_they_are(store, clock):
    old, new = await put(store, 2, user_id="ann")
    taken = {task.lease.task: task for task in await claim(store, lease=seconds(90_000))}
    await finish(store, taken[new], DONE)
    await clock.advance(7200)
    await finish(store, taken[old], DONE)
    since = (await store.get(old)).finished_at
    done = {"user_id": "ann", "status": TaskStatus.DONE}
    assert await _listed(store, limit=1, **done, ended_after=since) == [old]


async def test_two_tenants_may_name_their_users_alike(store):
    own = await put(store, 3, user_id="ann", tenant="acme")
    theirs = await put(store, 2, user_id="ann", tenant="other")
    assert await _listed(store, user_id="ann", tenant="acme") == own[::-1]
    assert await _listed(store, user_id="ann", tenant="other") == theirs[::-1]
    assert await _listed(store, user_id="ann", tenant="nobody") == []


@pytest.mark.parametrize("user", ["", "x" * 201, "a\0b", "a\nb", "\x85", "\ud800", 7])
async def test_a_user_that_cannot_be_is_refused_and_not_looked_for(store, user):
    with pytest.raises(InvalidInput, match="user_id"):
        draft(user_id=user)
    with pytest.raises(InvalidInput, match="user_id"):
        await store.list_tasks(TaskFilter(user_id=user))


async def test_a_cursor_of_one_users_list_leads_nowhere_without_the_user(store):
    await put(store, 2, user_id="ann")
    page = await store.list_tasks(TaskFilter(user_id="ann"), limit=1)
    with pytest.raises(InvalidInput, match="begin again without it"):
        await store.list_tasks(TaskFilter(), cursor=page.next)
