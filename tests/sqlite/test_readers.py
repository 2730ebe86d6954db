"""People's questions may take long; no worker waits for them, and their counts are bounded."""

import asyncio
import threading

import pytest

from holdfast.errors import StoreError
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver
from holdfast.stores.sqlite.verbs import VERBS, Verb
from tests.contract.acts import FAILED, MINUTE, claim, draft, finish, put, put_one, waiting

WORKERS = {
    "recover": lambda s: s.recover(),
    "claimed": lambda s: s.claimed(worker=1, grant=draft().id),
    "lanes": lambda s: s.lanes(),
    "journal": lambda s: s.journal(draft().id),
    "enqueue": lambda s: s.enqueue([draft()]),
}


@pytest.mark.parametrize("ask", WORKERS.values(), ids=WORKERS)
async def test_a_worker_does_not_wait_for_a_page(store, monkeypatch, ask):
    await put_one(store)

    begun, go = threading.Event(), threading.Event()

    def slow(s, *, cap, tenant):
        begun.set()
        go.wait(60)
        return []

    verb = Verb(run=slow, parameters=frozenset({"cap", "tenant"}), writes=False, page=True)
    monkeypatch.setitem(VERBS, "queue_loads", verb)
    page = asyncio.create_task(store.queue_loads())
    await asyncio.to_thread(begun.wait, 60)
    try:
        async with asyncio.timeout(30):
            await ask(store)
    finally:
        go.set()
    await page


ENDLESS = """
with recursive n (i) as (select 1 union all select i + 1 from n where i < 1000000000000)
select count(*) from n
"""


async def test_a_store_that_closes_waits_for_no_query(store, path):
    closing = SqlStore(SqliteDriver(path, timeout=3600))
    asked = asyncio.create_task(closing.query(ENDLESS))
    await closing.lanes()
    await asyncio.wait_for(closing.close(), 60)
    with pytest.raises(StoreError, match="closed during this query"):
        await asked


async def test_a_query_ends_when_nobody_waits_for_it_any_more(store, driver, monkeypatch):
    monkeypatch.setattr(driver, "_timeout", 3600)
    asked = asyncio.create_task(store.query(ENDLESS))
    await store.lanes()
    asked.cancel()
    assert await asyncio.wait_for(store.query("select 1"), 60) == (["1"], [(1,)])


def test_what_workers_ask_is_no_page_and_pages_do_not_write():
    pages = {name for name, verb in VERBS.items() if verb.page}
    assert pages.isdisjoint({"lapsed", "settled", "cancel_requested", "claimed", "lanes", "result"})
    assert {"queue_loads", "list_tasks", "events", "leases", "dead_letter_groups"} <= pages
    assert {"audits", "logs", "operations", "rollups", "event_numbers"} <= pages
    assert {"standing", "standing_gates"} <= pages
    assert not any(VERBS[name].writes for name in pages)


async def _loads(driver, cap):
    return {row[0]: row[1:] for row in await driver.call("queue_loads", cap=cap, tenant=None)}


async def _mixed(store):
    """In each of two queues: ready, scheduled, waiting, blocked, failed."""
    for queue in ("a", "b"):
        await put(store, 4, queue=queue)
        taken = await claim(store, 4)
        await finish(store, taken[:2], FAILED)
        await finish(store, taken[2:], waiting())
    for queue in ("a", "b"):
        await put(store, 2, queue=queue)
        await put(store, 2, queue=queue, delay=MINUTE)
        await put(store, 2, queue=queue, concurrency_key="k")


async def test_counts_are_exact_below_the_cap(store, driver):
    await _mixed(store)
    loads = await _loads(driver, 100)
    expected = (0, 2, 2, 2, 2, 0, 0, 2)
    assert {queue: row[:8] for queue, row in loads.items()} == {"a": expected, "b": expected}
    assert [row[9] for row in loads.values()] == [False, False]
    assert all(row[8] >= 0 for row in loads.values())


async def test_counts_beyond_the_cap_are_floors_and_say_so(store, driver):
    await _mixed(store)
    loads = await _loads(driver, 3)
    for *_, capped in loads.values():
        assert capped
    exact = {"scheduled": 4, "blocked": 4, "waiting": 4, "failed": 4}
    for place, count in zip((2, 3, 4, 7), exact.values(), strict=True):
        assert 0 < sum(row[place] for row in loads.values()) <= min(3, count)


async def test_many_of_one_queue_hide_the_ready_of_no_other(store, driver):
    await put(store, 50, queue="a")
    await put(store, 2, queue="b")
    loads = await _loads(driver, 10)
    assert (loads["a"][1], loads["a"][9]) == (10, True)
    assert (loads["b"][1], loads["b"][9]) == (2, False)


async def test_functions_that_wait_hide_nothing_scheduled(store, driver):
    await put(store, 20)
    await finish(store, await claim(store, 20), waiting())
    await put(store, 3, delay=MINUTE)
    ((_, _, scheduled, _, waits, *_),) = (await _loads(driver, 10)).values()
    assert (scheduled, waits) == (3, 10)
