"""Events while writers are in flight, which only PostgreSQL has: a late commit is not skipped."""

import asyncio
from functools import partial

import asyncpg
import pytest

from holdfast.ids import new_grant
from holdfast.stores import following
from holdfast.stores.sql import SqlStore
from tests.contract.acts import FAILED, claim_one, finish, put, put_one

ONLY = "postgres"


async def _write_event(conn: asyncpg.Connection, keeper, id) -> None:
    await conn.execute(
        f"insert into {keeper.schema}.refusal (id, grant_id, fence, verb, at) "
        "values ($1, $2, 1, 'renew', now())",
        id,
        new_grant(),
    )


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(following, "_PATIENCE", 3)


async def test_a_late_commit_is_not_skipped(store, keeper):
    id = await put_one(store)
    async with keeper.transaction(keep=True) as conn:
        await _write_event(conn, keeper, id)
        await finish(store, await claim_one(store))
        assert await store.events() == []
    assert [e.kind for e in await store.events()] == ["refused", "done"]


async def test_what_came_before_the_gap_is_answered(store, keeper):
    first, second = await put_one(store), await put_one(store)
    await finish(store, await claim_one(store))
    async with keeper.transaction(keep=True) as conn:
        await _write_event(conn, keeper, second)
        await finish(store, await claim_one(store))
        seen = await store.events()
    assert [e.task for e in seen] == [first]
    assert [e.kind for e in await store.events(after=seen[-1].seq)] == ["refused", "done"]


async def test_a_number_that_was_rolled_back_holds_up_nobody(store, keeper):
    id = await put_one(store)
    async with keeper.transaction(keep=False) as conn:
        await _write_event(conn, keeper, id)
    await finish(store, await claim_one(store))
    assert [e.kind for e in await store.events()] == ["done"]


async def test_what_happened_to_a_task_is_told_once_also_where_a_writer_stays(store, keeper):
    id = await put_one(store)
    async with keeper.transaction(keep=True) as conn:
        await _write_event(conn, keeper, id)
        await finish(store, await claim_one(store))
        first = await store.task_events(id)
    rest = await store.task_events(id, first.last)
    assert [e.kind for e in (*first, *rest)] == ["refused", "done"]


async def test_whoever_begins_at_the_newest_hears_of_a_writer_that_stays(store, keeper):
    _, second, *others = await put(store, 5)
    await finish(store, await claim_one(store))
    async with keeper.transaction(keep=True) as conn:
        await _write_event(conn, keeper, second)
        assert await store.newest_event() == 1, "what is not written yet holds up nobody"
        for _ in others:
            await finish(store, await claim_one(store))
        newest = await store.newest_event()
    heard = [(e.seq, e.kind) for e in await store.events(newest)]
    assert (newest, heard) == (1, [(2, "refused"), (3, "done"), (4, "done"), (5, "done")])


class AfterTheLook:
    """A driver that lets something happen after the first look at the open writers."""

    def __init__(self, driver, act) -> None:
        self._driver, self._act = driver, act

    async def call(self, verb, /, **parameters):
        rows = await self._driver.call(verb, **parameters)
        if verb == "writers" and self._act:
            act, self._act = self._act, None
            await act()
        return rows

    def __getattr__(self, name):
        return getattr(self._driver, name)


async def test_a_writer_that_comes_after_the_look_at_the_others_is_not_skipped(store, keeper):
    ids = await put(store, 4)
    slow, late = [keeper.transaction(keep=True) for _ in range(2)]

    async def write(id) -> None:
        async with keeper.transaction(keep=True) as conn:
            await _write_event(conn, keeper, id)

    async def others_come() -> None:
        await slow.__aexit__(None, None, None)
        await _write_event(await late.__aenter__(), keeper, ids[2])
        await write(ids[3])

    await _write_event(await slow.__aenter__(), keeper, ids[0])
    await write(ids[1])
    seen = await SqlStore(AfterTheLook(keeper.driver, others_come)).events()
    assert [e.task for e in seen] == ids[:2]
    await late.__aexit__(None, None, None)
    assert [e.task for e in await store.events(after=seen[-1].seq)] == ids[2:]


@pytest.mark.parametrize("of_all", [True, False], ids=["of all", "of one task"])
async def test_what_a_late_commit_pushes_out_of_a_page_is_on_the_next(store, keeper, of_all):
    id = await put_one(store)
    slow = keeper.transaction(keep=True)
    await _write_event(await slow.__aenter__(), keeper, id)
    async with keeper.transaction(keep=True) as conn:
        for _ in range(2):
            await _write_event(conn, keeper, id)
    late = SqlStore(AfterTheLook(keeper.driver, lambda: slow.__aexit__(None, None, None)))
    ask = late.events if of_all else partial(late.task_events, id)
    first = await ask(0, 2)
    rest = await ask(first.last, 2)
    assert [[e.seq for e in page] for page in (first, rest)] == [[1, 2], [3]]


async def test_whoever_forgets_waits_for_whoever_counts(store, keeper):
    await store.roll_up()
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    async with asyncio.timeout(60):
        async with keeper.transaction(keep=True) as conn:
            await conn.fetch(f"select {keeper.schema}.roll_up(0, 1)")
            forgetting = asyncio.create_task(store.discard([id]))
            while await keeper.peek(waiting) == [(0,)] and not forgetting.done():
                await asyncio.sleep(0.01)
        assert await forgetting == {id}
    assert await keeper.peek("select failed from rollup") == [(1,)]


async def test_whoever_counts_waits_for_whoever_forgets(store, keeper):
    await store.roll_up()
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    async with asyncio.timeout(60):
        async with keeper.transaction(keep=True) as conn:
            await conn.fetch(f"select {keeper.schema}.forget(array[$1::uuid])", id)
            counting = asyncio.create_task(keeper.driver.call("roll_up", after=0, upto=1))
            while await keeper.peek(waiting) == [(0,)] and not counting.done():
                await asyncio.sleep(0.01)
        await counting
    assert await keeper.peek("select failed from rollup") == [(1,)]
