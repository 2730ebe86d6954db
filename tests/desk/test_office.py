"""Keys, the audit, bulk operations and time series."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.desk import bulk, keys, office
from holdfast.desk.caller import Caller
from holdfast.desk.local import LocalDesk
from holdfast.desk.papers import AuditQuery, KeyWish, OperationWish, TaskSelection
from holdfast.desk.shapes import NewTask, TaskQuery
from holdfast.errors import InvalidInput, UnknownKey, UnknownOperation
from holdfast.ids import new_id
from holdfast.records import LogLine
from holdfast.upkeep.operations import Driver

PENDING = TaskSelection(status="pending")


async def make(desk: LocalDesk, count: int, **wish: object) -> list[UUID]:
    wishes = [msgspec.convert({"type": "pay", "args": [i], **wish}, NewTask) for i in range(count)]
    return [accepted.task.id for accepted in await desk.submit(wishes)]


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_is_shown_once_and_proves_itself(app: Holdfast, desk: LocalDesk) -> None:
    made = await desk.create_key(KeyWish(name="ci", scopes=["viewer"], expires="1h"))
    shown = keys.read(made.key)
    assert shown is not None
    store = (await app.home.client()).store
    record = await store.key(shown.id)
    assert record is not None
    assert shown.proves(record.digest)
    other = keys.read(made.key[:-1] + ("a" if made.key[-1] != "a" else "b"))
    assert other is not None
    assert not other.proves(record.digest)
    (listed,) = await desk.keys()
    assert (listed.scopes, listed.valid) == (["fleet:read", "tasks:read"], True)
    assert made.key[-32:] not in repr(listed) + repr(record)
    assert not (await desk.revoke_key(listed.id)).valid
    with pytest.raises(UnknownKey):
        await desk.revoke_key("nothing")


@pytest.mark.parametrize(
    "text", ["", "hf_", "hf_abcdefgh_short", "x" * 500, "hf_abcdefgh_" + "é" * 32]
)
def test_what_is_no_key_is_none(text: str) -> None:
    assert keys.read(text) is None


async def test_nobody_gives_away_more_than_they_have(app: Holdfast, desk: LocalDesk) -> None:
    few = await app.desk(Caller(name="few", tenant="acme", scopes=frozenset({"tasks:read"})))
    with pytest.raises(InvalidInput, match="what you lack"):
        await few.create_key(KeyWish(name="more", scopes=["admin"]))
    with pytest.raises(InvalidInput, match="'acme' only"):
        await few.create_key(KeyWish(name="other", scopes=["tasks:read"], tenant_id="other"))
    with pytest.raises(InvalidInput, match="no such scope"):
        await desk.create_key(KeyWish(name="odd", scopes=["tasks:everything"]))
    with pytest.raises(InvalidInput, match="needs scopes"):
        await desk.create_key(KeyWish(name="none", scopes=[]))
    own = await few.create_key(KeyWish(name="own", scopes=["tasks:read"]))
    assert own.record.tenant_id == "acme"
    foreign = await desk.create_key(KeyWish(name="all", scopes=["admin"]))
    assert [key.id for key in await few.keys()] == [own.record.id]
    with pytest.raises(UnknownKey):
        await few.revoke_key(foreign.record.id)


# ── the audit, and logs ──────────────────────────────────────────────────────────────────────


async def test_every_change_is_in_the_audit(
    app: Holdfast, desk: LocalDesk, acme: LocalDesk
) -> None:
    (task,) = await make(desk, 1)
    await make(acme, 2)
    await desk.cancel([task])
    await desk.retry([task])
    await desk.pause("money")
    await desk.resume("money")
    await desk.recover()
    await desk.signal(task, "go", {"secret": "not for the audit"})
    page = await desk.audits()
    assert [one.verb for one in reversed(page.data)] == [
        "task.enqueue",
        "task.enqueue",
        "task.cancel",
        "task.retry",
        "queue.pause",
        "queue.resume",
        "recovery.run",
        "flow.signal",
    ]
    assert page.data[-1].subject == str(task)
    assert "not for the audit" not in repr(page)
    assert [one.actor for one in (await acme.audits()).data] == ["acme's key"]
    first = await desk.audits(AuditQuery(limit=5))
    rest = await desk.audits(AuditQuery(before=first.next_before, limit=5))
    assert [one.seq for one in first.data + rest.data] == [one.seq for one in page.data]
    whole = await desk.audits(AuditQuery(limit=len(page.data)))
    assert (whole.data, whole.next_before) == (page.data, None), "a full page may be the last"


async def test_a_search_of_the_audit_looks_at_so_much_and_no_further_back_than_asked(
    desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in ("a", "b", "c", "d", "e"):
        await desk.pause(queue)
    every = (await desk.audits()).data
    monkeypatch.setattr(office, "_PAGE", 1)
    monkeypatch.setattr(office, "_PAGES", 2)
    monkeypatch.setattr(office, "_SLACK", timedelta(0))
    page = await desk.audits(AuditQuery(subject="b"))
    assert (page.data, page.next_before) == ([], every[1].seq)
    page = await desk.audits(AuditQuery(subject="b", before=page.next_before))
    assert [one.subject for one in page.data] == ["b"]
    page = await desk.audits(AuditQuery(since=every[0].at))
    assert ([one.subject for one in page.data], page.next_before) == (["e"], None)


async def test_what_another_tenant_has_is_an_empty_page(desk: LocalDesk, acme: LocalDesk) -> None:
    """Not refused, and not its own instead."""
    await make(acme, 1)
    await make(desk, 1, tenant_id="other")
    for tenant, count in (("other", 0), ("nobody", 0), ("", 0), ("acme", 1), (None, 1)):
        audit = await acme.audits(AuditQuery(tenant_id=tenant))
        assert (len(audit.data), audit.next_before) == (count, None)
        tasks = await acme.tasks(TaskQuery(tenant_id=tenant))
        assert (len(tasks.data), tasks.has_more) == (count, False)


async def test_lines_of_an_attempt_come_in_pages(app: Holdfast, desk: LocalDesk) -> None:
    (task,) = await make(desk, 1)
    store = (await app.home.client()).store
    lanes = list((await store.lanes()).lanes)
    (claimed,) = (
        await store.claim(worker=1, lanes=lanes, want=1, lease=timedelta(minutes=1))
    ).tasks
    lines = [
        LogLine(position=n, level="INFO", logger="shop", message=f"line {n}") for n in (1, 2, 3)
    ]
    await store.log(claimed.lease, lines)
    first = await desk.logs(task, limit=2)
    rest = await desk.logs(task, cursor=first.next_cursor, limit=2)
    assert [line.message for line in first.data + rest.data] == ["line 1", "line 2", "line 3"]
    assert rest.next_cursor is None
    assert (await desk.logs(task, limit=3)).next_cursor is None, "a full page may be the last"
    with pytest.raises(InvalidInput, match="cursor"):
        await desk.logs(task, cursor="1.x")


# ── bulk operations ──────────────────────────────────────────────────────────────────────────


async def test_an_operation_is_previewed_confirmed_and_driven(
    app: Holdfast, desk: LocalDesk
) -> None:
    store = (await app.home.client()).store
    tasks = await make(desk, 7)
    other = await make(desk, 1, queue="other")
    wish = OperationWish(action="cancel", filter=TaskSelection(status="pending", queue="money"))
    plan = await desk.start_operation(msgspec.structs.replace(wish, dry_run=True))
    assert (plan.state, plan.matched, plan.capped, plan.id) == ("planned", 7, False, None)
    assert set(plan.sample) == set(tasks)
    with pytest.raises(InvalidInput, match="7 tasks match, and 6 were confirmed"):
        await desk.start_operation(msgspec.structs.replace(wish, confirm_count=6))
    begun = await desk.start_operation(msgspec.structs.replace(wish, confirm_count=7, rate=4.0))
    assert begun.state == "pending"
    assert await Driver(store).sweep() == 1
    assert begun.id is not None
    ended = await desk.operation(begun.id)
    assert (ended.state, ended.done, ended.failed) == ("done", 7, 0)
    assert {(await desk.task(task)).status for task in tasks} == {"cancelled"}
    assert (await desk.task(other[0])).status == "pending"
    assert [one.id for one in await desk.operations()] == [begun.id]
    assert await Driver(store).sweep() == 0


@pytest.fixture
def few_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that match, among four."""
    for name, value in {"_CAP": 2, "_PAGE": 1, "_PAGES": 2}.items():
        monkeypatch.setattr(bulk, name, value)


@pytest.mark.usefixtures("few_pages")
async def test_matches_that_lie_far_back_are_not_counted_but_done(
    app: Holdfast, desk: LocalDesk
) -> None:
    tasks = [(await make(desk, 1))[0] for _ in range(7)]
    rare = TaskSelection(status="pending", created_after=(await desk.task(tasks[4])).created_at)
    wish = OperationWish(action="cancel", filter=rare)
    plan = await desk.start_operation(msgspec.structs.replace(wish, dry_run=True))
    assert (plan.matched, plan.capped, plan.sample) == (0, True, [])
    with pytest.raises(InvalidInput, match="at least 0 tasks match, but not all could be counted"):
        await desk.start_operation(msgspec.structs.replace(wish, confirm_count=1))
    assert await desk.operations() == []
    begun = await desk.start_operation(wish)
    assert (begun.matched, begun.capped) == (0, True)
    assert await Driver((await app.home.client()).store).sweep() == 1
    assert begun.id is not None
    ended = await desk.operation(begun.id)
    assert (ended.state, ended.done, ended.failed, ended.capped) == ("done", 3, 0, True)
    statuses = [(await desk.task(task)).status for task in tasks]
    assert statuses == ["pending"] * 4 + ["cancelled"] * 3


@pytest.mark.usefixtures("few_pages")
async def test_matches_beyond_the_most_that_are_counted_are_at_least_so_many(
    desk: LocalDesk,
) -> None:
    await make(desk, 6)
    wish = OperationWish(action="cancel", filter=PENDING)
    plan = await desk.start_operation(msgspec.structs.replace(wish, dry_run=True))
    assert (plan.matched, plan.capped, plan.types) == (2, True, {"pay": 2})
    with pytest.raises(InvalidInput, match="at least 5 tasks match, and 4 were confirmed"):
        await desk.start_operation(msgspec.structs.replace(wish, confirm_count=4))
    begun = await desk.start_operation(msgspec.structs.replace(wish, confirm_count=6))
    assert (begun.matched, begun.capped) == (6, False)


async def test_a_cancelled_operation_stops_where_it_stands(app: Holdfast, desk: LocalDesk) -> None:
    store = (await app.home.client()).store
    tasks = await make(desk, 20)
    begun = await desk.start_operation(OperationWish(action="cancel", filter=PENDING, rate=2.0))
    assert begun.id is not None
    driving = asyncio.create_task(Driver(store).sweep())
    async with asyncio.timeout(60):
        while not (await desk.operation(begun.id)).done:
            await asyncio.sleep(0.01)
    assert (await desk.cancel_operation(begun.id)).state == "cancelled"
    await driving
    ended = await desk.operation(begun.id)
    left = [task for task in tasks if (await desk.task(task)).status == "pending"]
    assert ended.state == "cancelled"
    assert 0 < len(left) <= 20 - ended.done, "what was under way may be done, and is not counted"
    with pytest.raises(UnknownOperation):
        await desk.operation(new_id())


async def test_an_operation_goes_on_after_its_driver_died(app: Holdfast, desk: LocalDesk) -> None:
    store = (await app.home.client()).store
    tasks = await make(desk, 6)
    await desk.start_operation(OperationWish(action="cancel", filter=PENDING, rate=4.0))
    driving = asyncio.create_task(Driver(store, lease=timedelta(seconds=3)).sweep())
    async with asyncio.timeout(60):
        while not (await desk.operations())[0].done:
            await asyncio.sleep(0.01)
    driving.cancel()
    await asyncio.wait({driving})
    async with asyncio.timeout(60):
        while not await Driver(store).sweep():  # until its lease has ended
            await asyncio.sleep(0.2)
    (ended,) = await desk.operations()
    assert (ended.state, ended.done) == ("done", 6)
    assert {(await desk.task(task)).status for task in tasks} == {"cancelled"}


async def test_a_tenant_reaches_its_own_tasks_only(desk: LocalDesk, acme: LocalDesk) -> None:
    own, others = await make(acme, 2), await make(desk, 3)
    with pytest.raises(InvalidInput, match="'acme' only"):
        await acme.start_operation(
            OperationWish(
                action="cancel", filter=TaskSelection(status="pending", tenant_id="default")
            )
        )
    begun = await acme.start_operation(OperationWish(action="cancel", filter=PENDING))
    assert begun.matched == 2
    assert begun.id is not None
    await Driver(desk._store).sweep()
    assert {(await desk.task(task)).status for task in own} == {"cancelled"}
    assert {(await desk.task(task)).status for task in others} == {"pending"}
    theirs = await desk.start_operation(OperationWish(action="cancel", filter=PENDING))
    assert theirs.id is not None
    with pytest.raises(UnknownOperation):
        await acme.operation(theirs.id)
    assert [one.id for one in await acme.operations()] == [begun.id]


# ── time series, and what one tenant sees of the fleet ───────────────────────────────────────


async def test_what_ended_is_counted_by_the_minute(app: Holdfast, desk: LocalDesk) -> None:
    tasks = await make(desk, 3)
    await desk.cancel(tasks)
    await desk._store.roll_up()
    now = datetime.now(UTC)
    series = await desk.series(now - timedelta(hours=1), now + timedelta(hours=1))
    assert sum(point.cancelled for point in series.data) == 3
    assert series.step_seconds == 60.0
    with pytest.raises(InvalidInput):
        await desk.series(now - timedelta(days=3650), now)


async def test_a_tenant_counts_its_own(desk: LocalDesk, acme: LocalDesk) -> None:
    await make(desk, 3)
    await make(acme, 1)
    assert (await acme.queue("money")).pending == 1
    assert (await acme.stats()).totals.pending == 1
    assert (await desk.stats()).totals.pending == 4
