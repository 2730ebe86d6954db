"""The audit log: what was noted stays as it was, until its retention is over."""

import asyncio

import pytest

from holdfast.errors import InvalidInput
from tests.contract.acts import seconds

YEAR = seconds(365 * 86_400)


async def _note(store, count: int, **fields) -> list[int]:
    return [await store.note("ann", "pause", f"q{n}", **fields) for n in range(count)]


async def test_who_did_what_is_read_back(store):
    detail = {"before": {"paused": False}, "from": "10.0.0.1", "odd": "NUL \0, ü, 1e400"}
    seq = await store.note("key:k1", "queue.pause", "mail", tenant="acme", detail=detail)
    (record,) = await store.audits()
    assert (record.seq, record.actor, record.verb) == (seq, "key:k1", "queue.pause")
    assert (record.subject, record.tenant, record.detail) == ("mail", "acme", detail)


async def test_the_newest_come_first_page_by_page(store):
    noted = await _note(store, 5)
    assert noted == sorted(set(noted))
    first = await store.audits(limit=2)
    assert [r.seq for r in first] == [noted[4], noted[3]]
    rest = await store.audits(before=first[-1].seq)
    assert [r.seq for r in rest] == noted[2::-1]


async def test_a_follower_reads_on_from_the_last_one(store):
    noted = await _note(store, 5)
    first = await store.audits(after=0, limit=3)
    assert [r.seq for r in first] == noted[:3]
    assert [r.seq for r in await store.audits(after=first[-1].seq)] == noted[3:]
    assert await store.audits(after=noted[-1]) == []


async def test_a_tenant_sees_its_own_only(store):
    await _note(store, 2)
    own = await _note(store, 2, tenant="acme")
    await _note(store, 2, tenant="other")
    assert [r.seq for r in await store.audits(tenant="acme")] == own[::-1]
    assert [r.seq for r in await store.audits(tenant="acme", after=0)] == own


async def test_a_follower_of_many_writers_misses_nothing(store, keeper):
    seen: list[int] = []

    async def write() -> None:
        own = keeper.store()
        for n in range(20):
            await own.note("ann", "x", str(n))

    async def follow() -> None:
        while len(seen) < 100:
            page = await store.audits(after=seen[-1] if seen else 0, limit=7)
            seen.extend(r.seq for r in page)
            await asyncio.sleep(0)  # a store without threads never lets the others run

    async with asyncio.timeout(60):
        await asyncio.gather(follow(), *(write() for _ in range(5)))
    assert seen == sorted(set(seen))


CHANGES = {
    "update": "update audit set actor = 'nobody'",
    "delete": "delete from audit",
    "delete the oldest": "delete from audit where seq = (select min(seq) from audit)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_the_database_itself_refuses_changes(store, peek, dump, change):
    await _note(store, 3)
    before = await dump()
    with pytest.raises(Exception, match="the audit log only grows"):
        await peek(change)
    assert await dump() == before


async def test_cleanup_forgets_what_is_past_its_retention_and_nothing_else(store, clock, peek):
    await _note(store, 3)
    await clock.advance(100)
    kept = await _note(store, 2)
    await clock.advance(50)
    for _ in range(3):
        await store.cleanup(seconds(0), audits=seconds(100), batch=1)
        with pytest.raises(Exception, match="the audit log only grows"):
            await peek(f"delete from audit where seq = {kept[0]}")
    assert [r.seq for r in await store.audits(after=0)] == kept
    assert min(await _note(store, 1)) > kept[-1]


async def test_audit_records_outlive_tasks_by_a_year(store, clock):
    await _note(store, 1)
    await clock.advance(364 * 86_400)
    await store.cleanup(seconds(0))
    assert len(await store.audits()) == 1
    await clock.advance(2 * 86_400)
    await store.cleanup(seconds(0))
    assert await store.audits() == []


async def test_what_cannot_be_noted_is_refused(store, dump):
    before = await dump()
    with pytest.raises(InvalidInput, match="plain JSON"):
        await store.note("ann", "x", detail={"a": object()})
    with pytest.raises(InvalidInput, match="bytes; at most"):
        await store.note("ann", "x", detail={"a": "x" * 70_000})
    with pytest.raises(InvalidInput, match="not both"):
        await store.audits(after=1, before=9)
    with pytest.raises(InvalidInput, match="1 to 1000"):
        await store.audits(limit=0)
    assert await dump() == before
