"""Lists: every task of a kind exactly once, page by page, whatever the filter."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from holdfast.answers import TaskFilter
from holdfast.errors import InvalidInput, UnknownTask
from holdfast.ids import new_id
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Failure, TaskStatus
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    TYPE,
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

EARLIEST = [datetime.min.replace(tzinfo=zone) for zone in (UTC, timezone(timedelta(hours=14)))]


async def _walk(store, limit: int = 3, **filter) -> list[UUID]:
    """All ids, page by page."""
    found: list[UUID] = []
    cursor, pages = None, 0
    while True:
        page = await store.list_tasks(TaskFilter(**filter), cursor=cursor, limit=limit)
        assert len(page.tasks) <= limit
        found += [task.id for task in page.tasks]
        cursor, pages = page.next, pages + 1
        assert pages < 100
        if cursor is None:
            return found


async def _ended(store, settlement, count: int = 7) -> list[UUID]:
    """Tasks that ended one after the other, the newest end first."""
    await put(store, count, queue="a")
    ends: list[UUID] = []
    for claimed in reversed(await claim(store)):
        await finish(store, claimed, settlement)
        ends.insert(0, claimed.lease.task)
    return ends


async def test_a_store_without_tasks_lists_none(store):
    for status in [None, *TaskStatus]:
        page = await store.list_tasks(TaskFilter(status=status))
        assert (page.tasks, page.next) == ([], None)


async def test_lists_are_filtered_by_the_last_error(store):
    boom, bang, again, fine = await put(store, 4, max_tries=2)
    taken = {c.lease.task: c for c in await claim(store)}
    bad = Failure(type="Bang", message="it went OFF, 100%_sure")
    await finish(store, taken[boom], FAILED)
    await finish(store, taken[bang], Settlement(verdict=Verdict.FAILED, failure=bad))
    await finish(store, taken[again], retry(after=60))
    await finish(store, taken[fine], DONE)
    assert (await store.get(bang)).last_error_type == "Bang"
    failed = {"status": TaskStatus.FAILED}
    assert await _walk(store, 2, **failed, error_type="Bang") == [bang]
    assert await _walk(store, 2, **failed, error_type="bang") == []
    assert await _walk(store, 2, **failed, error="went off") == [bang]
    assert await _walk(store, 2, **failed, error="0%_s") == [bang]
    assert await _walk(store, 2, **failed, error="0__s") == []
    assert await _walk(store, 2, **failed, error="IT") == [bang, boom]
    assert await _walk(store, 2, error="broke") == [again, boom]


async def test_lists_are_filtered_by_time(store, clock):
    ids = []
    for _ in range(5):
        ids.append(await put_one(store))
        await clock.advance(3600)
        await finish(store, await claim_one(store), FAILED)
        await clock.advance(3600)
    times = [await store.get(id) for id in ids]
    failed = {"status": TaskStatus.FAILED}
    ended, made = times[2].finished_at, times[2].created_at
    for every in (failed, {}):
        assert await _walk(store, 2, **every, ended_after=ended) == ids[:1:-1]
        assert await _walk(store, 2, **every, ended_before=ended) == ids[1::-1]
        assert await _walk(store, 2, **every, created_after=made) == ids[:1:-1]
        assert await _walk(store, 2, **every, created_before=made) == ids[1::-1]
        both = {"ended_after": times[1].finished_at, "ended_before": times[3].finished_at}
        assert await _walk(store, 2, **every, **both) == [ids[2], ids[1]]
        for first in EARLIEST:
            assert await _walk(store, 2, **every, ended_after=first) == ids[::-1]
            assert await _walk(store, 2, **every, created_after=first) == ids[::-1]
    open_one = await put_one(store)
    assert await _walk(store, 2, ended_before=times[4].finished_at) == ids[3::-1]
    assert open_one not in await _walk(store, 2, ended_after=times[0].finished_at)


async def test_what_ended_long_before_is_not_read_at_all(store, clock):
    for _ in range(6):
        await put_one(store)
        await finish(store, await claim_one(store), FAILED)
        await clock.advance(7200)
    newest = (await store.list_tasks(TaskFilter(status=TaskStatus.FAILED), limit=1)).tasks[0]
    recent = TaskFilter(status=TaskStatus.FAILED, ended_after=newest.finished_at)
    first = await store.list_tasks(recent, limit=2)
    assert ([task.id for task in first.tasks], first.next) == ([newest.id], None)


async def test_all_tasks_are_listed_newest_first(store):
    drafts = [draft(f"job:{n % 3}", queue=f"q{n % 2}") for n in range(11)]
    await store.enqueue(drafts)
    await finish(store, await claim(store, 5))
    await store.cancel([drafts[7].id])
    assert await _walk(store) == [d.id for d in reversed(drafts)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_pending_tasks_are_listed_in_the_order_in_which_they_will_be_taken(store, limit):
    await store.limit("type", "job:keyed", Limit(max_per_key=1))
    ready = [await put_one(store, queue=f"q{n % 2}", priority=n % 2) for n in range(5)]
    later = [await put_one(store, delay=seconds(n)) for n in (50, 10, 30)]
    running = await put_one(store, "job:keyed", concurrency_key="k", priority=9)
    held = await claim_one(store)
    assert held.lease.task == running
    blocked = await put(store, 3, "job:keyed", concurrency_key="k")
    expected = [ready[n] for n in (1, 3, 0, 2, 4)] + [later[n] for n in (1, 2, 0)] + blocked
    assert await _walk(store, limit, status=TaskStatus.PENDING) == expected


async def test_running_tasks_are_listed_newest_first(store):
    ids = await put(store, 7)
    await claim(store)
    await put_one(store)
    assert await _walk(store, status=TaskStatus.RUNNING) == ids[::-1]


async def test_waiting_tasks_are_listed_newest_first(store):
    ids = await put(store, 7)
    await finish(store, await claim(store), waiting(reason="child"))
    await put_one(store, delay=seconds(5))
    assert await _walk(store, status=TaskStatus.WAITING) == ids[::-1]
    page = await store.list_tasks(TaskFilter(status=TaskStatus.WAITING))
    assert {task.reason for task in page.tasks} == {"child"}


@pytest.mark.parametrize("settlement", [DONE, FAILED, CANCELLED], ids=lambda s: s.verdict.value)
async def test_ended_tasks_are_listed_by_their_end_newest_first(store, settlement):
    ids = await _ended(store, settlement)
    await put_one(store)
    assert await _walk(store, status=TaskStatus(settlement.verdict.value)) == ids
    others = {TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED}
    for status in others - {TaskStatus(settlement.verdict.value)}:
        assert await _walk(store, status=status) == []


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"queue": "vip"}, {"vip"}),
        ({"type": "job:other"}, {"other"}),
        ({"tenant": "acme"}, {"acme"}),
        ({"tag": "mail"}, {"mail"}),
        ({"queue": "vip", "tenant": "acme"}, set()),
        ({"queue": "default", "tag": "mail"}, {"mail"}),
        ({"queue": "nowhere"}, set()),
    ],
    ids=str,
)
@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "waiting", "done"])
async def test_lists_are_filtered(store, filter, expected, state):
    delay = seconds(60) if state == "scheduled" else None
    names = {
        await put_one(store, delay=delay): "plain",
        await put_one(store, queue="vip", delay=delay): "vip",
        await put_one(store, "job:other", delay=delay): "other",
        await put_one(store, tenant="acme", delay=delay): "acme",
        await put_one(store, tags=("billing", "mail"), delay=delay): "mail",
    }
    if state in ("running", "waiting", "done"):
        claimed = await claim(store)
        if state != "running":
            await finish(store, claimed, DONE if state == "done" else waiting())
    status = "pending" if state in ("ready", "scheduled") else state
    for wanted in (None, TaskStatus(status)):
        assert {names[id] for id in await _walk(store, **filter, status=wanted)} == expected
    assert {names[id] for id in await _walk(store, 2, status=TaskStatus(status))} == set(
        names.values()
    )


async def test_another_process_finds_lanes_that_it_has_not_seen(store, keeper):
    other = keeper.store()
    assert await _walk(other) == []
    id = await put_one(store, queue="new")
    assert await _walk(other, queue="new") == [id]


async def test_what_comes_in_while_somebody_reads_makes_nothing_appear_twice(store):
    old = await put(store, 6)
    page = await store.list_tasks(TaskFilter(), limit=3)
    await put(store, 3)
    rest = await store.list_tasks(TaskFilter(), cursor=page.next, limit=10)
    assert [t.id for t in page.tasks + rest.tasks] == old[::-1]


async def test_a_full_page_that_is_the_last_says_so(store):
    """Of whatever kind, and where what is listed stands in several places."""
    await put(store, 2, user_id="ann")
    for settlement in (DONE, FAILED, CANCELLED, waiting()):
        await finish(store, await claim(store), settlement)
        await put(store, 2, user_id="ann")
    await claim(store)
    await put(store, 1)
    await put(store, 1, delay=seconds(60))
    statuses: list[TaskFilter] = [TaskFilter(status=status) for status in TaskStatus]
    for filter, count in [
        (TaskFilter(), 12),
        (TaskFilter(user_id="ann"), 10),
        *[(one, 2) for one in statuses],
    ]:
        whole = await store.list_tasks(filter, limit=count)
        assert (len(whole.tasks), whole.next) == (count, None)
        short = await store.list_tasks(filter, limit=count - 1)
        assert short.next is not None
        rest = await store.list_tasks(filter, cursor=short.next, limit=1)
        assert short.tasks + rest.tasks == whole.tasks
        assert rest.next is None


@pytest.mark.parametrize("cursor", ["x", "[]", '["nowhere"]', '["all", 7]', '["pending", 1]', "{}"])
async def test_a_cursor_that_is_not_ours_is_refused(store, cursor):
    with pytest.raises(InvalidInput, match="begin again without it"):
        await store.list_tasks(TaskFilter(), cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_is_bounded(store, limit):
    with pytest.raises(InvalidInput, match="1 to 1000"):
        await store.list_tasks(TaskFilter(), limit=limit)


async def test_a_listed_task_is_as_complete_as_one_that_was_asked_for(store):
    id = await put_one(store, queue="vip", tags=("x",), max_tries=2, key="k", user_id="ann")
    (listed,) = (await store.list_tasks(TaskFilter(status=TaskStatus.PENDING))).tasks
    assert listed == await store.get(id)
    assert (listed.type, listed.queue, listed.key) == (TYPE, "vip", "k")
    assert listed.user_id == "ann"


async def test_an_unknown_task_is_unknown(store):
    id = new_id()
    for ask in (store.get, store.ending):
        with pytest.raises(UnknownTask, match=str(id)):
            await ask(id)
