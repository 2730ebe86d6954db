"""Children of durable functions: accepted under their parent's lease, cancelled with it."""

from contextlib import suppress
from uuid import UUID

import pytest

from holdfast.answers import Step
from holdfast.errors import InvalidInput, KeyConflict, LeaseLost, TaskEnds
from holdfast.ids import new_grant
from holdfast.stores import flows
from holdfast.tasks.task import Claimed, Lease, TaskStatus
from tests.contract.acts import (
    DONE,
    WORKER,
    anew,
    claim,
    claim_one,
    draft,
    finish,
    put_one,
    retry,
    status_of,
    waiting,
)

ASK = Step(position=0, kind="ask.child", name="work", value=b"{}")


async def parent_of(store):
    await put_one(store)
    return await claim_one(store)


async def test_a_child_is_accepted_together_with_its_step(store):
    lease = (await parent_of(store)).lease
    child = draft(parent=lease.task)
    assert (await store.record(lease, [ASK], children=[child])).children == [child.id]
    assert (await store.journal(lease.task)).steps == [ASK]
    assert (await store.get(child.id)).parent == lease.task


async def test_asked_again_after_a_lost_answer_it_is_the_same_child(store):
    lease = (await parent_of(store)).lease
    children = [draft(parent=lease.task), draft(parent=lease.task, key="k")]
    for _ in range(2):
        written = await store.record(lease, [ASK], children=children)
        assert written.children == [c.id for c in children]


async def test_a_stale_parent_gets_no_child(store):
    lease = (await parent_of(store)).lease
    stale = Lease(lease.task, new_grant(), lease.fence)
    child = draft(parent=lease.task)
    with pytest.raises(LeaseLost):
        await store.record(stale, [ASK], children=[child])
    with pytest.raises(LookupError):
        await store.get(child.id)


async def test_a_child_whose_key_is_taken_is_the_task_that_has_it(store):
    lease = (await parent_of(store)).lease
    other = await put_one(store, key="k")
    child = draft(parent=lease.task, key="k")
    for _ in range(2):
        assert (await store.record(lease, [ASK], children=[child])).children == [other]


async def test_a_key_of_other_work_is_refused_and_nothing_is_recorded(store):
    lease = (await parent_of(store)).lease
    await put_one(store, key="k", payload=b"[1]")
    plain = draft(parent=lease.task)
    with pytest.raises(KeyConflict):
        await store.record(
            lease, [ASK], children=[plain, draft(parent=lease.task, key="k", payload=b"[2]")]
        )
    assert (await store.journal(lease.task)).steps == []
    with pytest.raises(LookupError):
        await store.get(plain.id)


async def test_children_come_with_a_step(store):
    lease = (await parent_of(store)).lease
    with pytest.raises(InvalidInput):
        await store.record(lease, [], children=[draft(parent=lease.task)])


async def test_news_tell_what_has_come(store):
    lease = (await parent_of(store)).lease
    children = [draft(parent=lease.task) for _ in range(3)]
    await store.record(lease, [ASK], children=children)
    ids = [child.id for child in children]
    assert (await store.news(lease.task, ids)).endings == {}
    claimed = await claim(store, want=2)
    for task in claimed:
        await finish(store, task)
    sent = new_grant()
    assert await store.send_signal(lease.task, sent, "go", b"1")
    news = await store.news(lease.task, ids, signals=["go"])
    assert {id: e.result for id, e in news.endings.items()} == {
        task.lease.task: DONE.result for task in claimed
    }
    assert [(s.id, s.name, s.payload) for s in news.signals] == [(sent, "go", b"1")]
    assert len(news.wakes) == 3
    assert (await store.news(lease.task, [])).endings == {}


async def test_ends_of_very_many_children_are_read_in_parts(store, monkeypatch):
    """All their results at once are more than PostgreSQL sends."""
    monkeypatch.setattr(flows, "_PAGE", 2)
    lease = (await parent_of(store)).lease
    children = [draft(parent=lease.task) for _ in range(5)]
    await store.record(lease, [ASK], children=children)
    await store.send_signal(lease.task, new_grant(), "go", b"1")
    claimed = await claim(store, want=4)
    for task in claimed:
        await finish(store, task)
    asked = []
    call = store._call

    async def watched(verb, /, **parameters):
        asked.append(len(parameters["children"]))
        return await call(verb, **parameters)

    monkeypatch.setattr(store, "_call", watched)
    news = await store.news(lease.task, [child.id for child in children], signals=["go"])
    assert set(news.endings) == {task.lease.task for task in claimed}
    assert (len(news.signals), len(news.wakes)) == (1, 5)
    assert asked == [2, 2, 1]


async def test_a_cancel_goes_down_to_children_and_theirs(store):
    lease = (await parent_of(store)).lease
    child = draft(parent=lease.task)
    await store.record(lease, [ASK], children=[child])
    below = (await claim_one(store)).lease
    grandchild = draft(parent=child.id)
    await store.record(below, [ASK], children=[grandchild])
    other = await put_one(store)
    await store.settle([(lease, waiting()), (below, waiting())])
    assert await store.cancel([lease.task]) == {lease.task: "cancelled"}
    for id in (child.id, grandchild.id):
        assert await status_of(store, id) is TaskStatus.CANCELLED
    assert await status_of(store, other) is TaskStatus.PENDING


async def test_ages_tell_how_long_ago_steps_were_recorded(store, clock):
    lease = (await parent_of(store)).lease
    await store.record(lease, [ASK])
    await clock.advance(7.0)
    (age,) = (await store.journal(lease.task)).ages
    assert 6.9 < age < 60


async def test_a_run_that_begins_anew_has_other_arguments_and_no_journal(store):
    lease = (await parent_of(store)).lease
    await store.record(lease, [ASK])
    await store.send_signal(lease.task, new_grant(), "go", b"1")
    for _ in range(2):  # asked again after a lost answer
        assert await store.settle([(lease, anew(b'{"args": [2]}'))]) == frozenset()
    assert (await store.journal(lease.task)).steps == []
    assert await store.payload(lease.task) == b'{"args": [2]}'
    assert len((await store.news(lease.task, [], signals=["go"])).signals) == 1
    (again,) = await claim(store)
    assert (again.lease.fence, again.tries, again.since) == (2, 1, 2)
    assert again.payload == b'{"args": [2]}'
    with pytest.raises(LookupError):
        await store.payload(new_grant())


async def test_a_run_that_begins_anew_has_all_its_tries(store, clock):
    """Else a function without an end would come to its end after so many crashes, years apart."""
    mine = (await parent_of(store)).lease.task
    await parent_of(store)
    held: dict[UUID, Claimed] = {}
    for _ in range(2):  # lost in company: given back, then paid for
        await clock.advance(65)
        assert len(await store.recover()) == 2
        held = {claimed.lease.task: claimed for claimed in await claim(store)}
    assert (held[mine].tries, held[mine].alone) == (2, True)
    await store.settle([(held[mine].lease, anew(b"[2]"))])
    (again,) = await claim(store)
    assert (again.lease.task, again.tries, again.alone) == (mine, 1, False)


async def test_to_begin_anew_asked_again_later_changes_nothing_of_the_new_run(store, dump):
    lease = (await parent_of(store)).lease
    await store.settle([(lease, anew(b"[2]"))])
    (again,) = await claim(store)
    await store.record(again.lease, [ASK])
    await store.settle([(again.lease, retry(60))])
    before = await dump()
    assert await store.settle([(lease, anew(b"[2]"))]) == frozenset()
    assert await dump() == before


async def test_a_run_begins_anew_with_the_rows_of_a_transaction(store):
    lease = (await parent_of(store)).lease
    before = await store.payload(lease.task)
    for stale in (lease, Lease(lease.task, new_grant(), lease.fence)):
        with suppress(ZeroDivisionError, LeaseLost):
            async with store.transaction() as conn:
                await store.settle([(stale, anew(b"[2]"))], conn=conn)
                assert stale is lease
                raise ZeroDivisionError
        assert await store.payload(lease.task) == before
    async with store.transaction() as conn:
        with pytest.raises(InvalidInput, match="by itself"):
            await store.settle([(lease, anew(b"[2]"))] * 2, conn=conn)
    async with store.transaction() as conn:
        await store.settle([(lease, anew(b"[2]"))], conn=conn)
    assert await store.payload(lease.task) == b"[2]"
    assert await status_of(store, lease.task) is TaskStatus.PENDING
    (again,) = await claim(store)
    await store.cancel([lease.task])
    with pytest.raises(TaskEnds):
        async with store.transaction() as conn:
            await store.settle([(again.lease, anew(b"[3]"))], conn=conn)
    assert await status_of(store, lease.task) is TaskStatus.RUNNING


async def test_a_run_that_was_cancelled_does_not_begin_anew(store):
    lease = (await parent_of(store)).lease
    await store.record(lease, [ASK])
    await store.cancel([lease.task])
    before = await store.payload(lease.task)
    assert await store.settle([(lease, anew(b"[2]"))]) == frozenset()
    assert await status_of(store, lease.task) is TaskStatus.CANCELLED
    assert [step.name for step in (await store.journal(lease.task)).steps] == [ASK.name]
    assert await store.payload(lease.task) == before


async def test_the_parent_of_a_run_that_was_cancelled_as_it_began_anew_is_woken(store):
    parent = (await parent_of(store)).lease
    child = draft("job:child", parent=parent.task)
    await store.record(parent, [ASK], children=[child])
    (held,) = await claim(store)
    await store.settle([(parent, waiting())])
    await store.cancel([child.id])
    await store.settle([(held.lease, anew(b"[2]"))])
    assert await status_of(store, child.id) is TaskStatus.CANCELLED
    assert await status_of(store, parent.task) is TaskStatus.PENDING


async def test_runs_begin_anew_beside_others_that_end(store):
    leases = [(await parent_of(store)).lease for _ in range(4)]
    await store.settle([(leases[3], DONE)])
    gone = Lease(leases[0].task, new_grant(), 1)
    refused = await store.settle(
        [(gone, anew(b"[1]")), (leases[1], anew(b"[2]")), (leases[2], DONE), (leases[3], DONE)]
    )
    assert refused == {gone.task}
    assert await store.payload(gone.task) != b"[1]"
    assert await store.payload(leases[1].task) == b"[2]"
    assert await status_of(store, leases[1].task) is TaskStatus.PENDING
    assert await status_of(store, leases[2].task) is TaskStatus.DONE


async def test_a_claim_tells_which_functions_have_a_journal(store):
    first = (await parent_of(store)).lease
    await store.record(first, [ASK])
    second = (await parent_of(store)).lease
    await store.settle([(first, waiting(0)), (second, waiting(0))])
    again = {task.lease.task: task for task in await claim(store)}
    assert again[first.task].recorded
    assert not again[second.task].recorded
    held = await store.claimed(worker=WORKER, grant=again[first.task].lease.grant)
    assert [task.lease.task for task in held if task.recorded] == [first.task]


async def test_a_claim_tells_the_root_of_a_family(store):
    """A lost answer that is asked for again tells it as well."""
    top = await parent_of(store)
    middle = draft(parent=top.lease.task)
    await store.record(top.lease, [ASK], children=[middle])
    (held,) = await claim(store)
    assert (held.parent, held.root) == (top.lease.task, top.lease.task)
    await store.record(held.lease, [ASK], children=[draft(parent=middle.id) for _ in range(2)])
    below = await claim(store)
    assert [(task.parent, task.root) for task in below] == [(middle.id, top.lease.task)] * 2
    again = await store.claimed(worker=WORKER, grant=below[0].lease.grant)
    assert [task.root for task in again] == [top.lease.task] * 2
    assert top.root is None
