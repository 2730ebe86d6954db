"""Views for one tenant: its own and nobody else's; what others have must not hide it."""

import pytest

from holdfast.errors import InvalidInput
from holdfast.stores import following, views
from holdfast.tasks.limits import Limit
from tests.contract.acts import (
    DONE,
    FAILED,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    seconds,
    waiting,
)


async def test_events_of_one_tenant(store):
    own = await put(store, 2, tenant="acme", queue="q")
    await put(store, 3, tenant="other")
    await finish(store, await claim(store))
    page = await store.events(tenant="acme")
    assert sorted(e.task for e in page) == sorted(own)
    assert {(e.tenant, e.queue, e.type) for e in page} == {("acme", "q", "shop.orders:charge")}
    assert page.last == 5
    assert await store.events(tenant="nobody") == []


async def test_refusals_and_retries_belong_to_the_tasks_tenant(store, clock):
    await put_one(store, tenant="acme", max_tries=9)
    await put_one(store, tenant="other", max_tries=9)
    await finish(store, await claim(store), retry())
    late = await claim(store)
    await clock.advance(61)
    await store.recover()
    await store.settle([(c.lease, DONE) for c in late])
    for tenant in ("acme", "other"):
        kinds = [e.kind for e in await store.events(tenant=tenant)]
        assert kinds == ["retry", "lost", "refused"]


async def test_a_tenant_whose_events_are_rare_reads_on_from_the_last(store, monkeypatch):
    monkeypatch.setattr(following, "_SCAN", 4)
    await put(store, 10, tenant="other")
    await finish(store, await claim(store))
    rare = await put(store, 3, tenant="acme")
    await finish(store, await claim(store))
    pages, after = [], 0
    while (page := await store.events(after, 2, tenant="acme")).last != after:
        assert len(page) <= 2
        pages.append([e.task for e in page])
        after = page.last
    assert pages[:2] == [[], []]
    assert sorted(task for page in pages for task in page) == sorted(rare)
    assert after == 13


async def test_a_page_for_all_says_how_far_it_was_read(store):
    assert (await store.events()).last == 0
    await put(store, 3)
    await finish(store, await claim(store))
    assert (await store.events(limit=2)).last == 2
    assert (await store.events(after=2)).last == 3
    assert (await store.events(after=3)).last == 3


async def test_leases_of_one_tenant(store):
    await put(store, 2, tenant="acme")
    await put(store, 3, tenant="other")
    await claim(store)
    assert [lease.tenant for lease in await store.leases(tenant="acme")] == ["acme"] * 2
    assert [lease.tenant for lease in await store.leases(tenant="acme", limit=1)] == ["acme"]
    assert len(await store.leases()) == 5
    assert await store.leases(tenant="nobody") == []
    counted = await store.lease_counts(tenant="acme")
    assert sum(count.held for count in counted.values()) == 2


async def test_queue_loads_of_one_tenant(store, clock):
    for tenant, count in (("acme", 1), ("other", 3)):
        await put(store, 5 * count, "job:a", queue="q", tenant=tenant)
        await put(store, count, "job:later", queue="q", tenant=tenant, delay=seconds(600))
        lanes = [id for id, lane in (await store.lanes()).lanes.items() if lane.tenant == tenant]
        held = await claim(store, 4 * count, lanes=lanes)
        await finish(store, held[:count], FAILED)
        await finish(store, held[count : 2 * count], waiting(900))
    await put(store, 7, queue="theirs", tenant="other")
    await clock.advance(30)
    (load,) = await store.queue_loads(tenant="acme")
    counts = (load.queue, load.ready, load.scheduled, load.waiting, load.running, load.failed)
    assert counts == ("q", 1, 1, 1, 2, 1)
    assert load.oldest_age == 30.0
    assert not load.capped
    both = {q.queue: q.ready for q in await store.queue_loads(tenant="other")}
    assert both == {"q": 3, "theirs": 7}
    assert {q.queue: q.ready for q in await store.queue_loads()} == {"q": 4, "theirs": 7}
    assert await store.queue_loads(tenant="nobody") == []


async def test_blocked_and_lapsed_tasks_are_counted_for_their_tenant(store, clock):
    await store.limit("type", "job:keyed", Limit(max_per_key=1))
    for tenant in ("acme", "other"):
        await put(store, 3, "job:keyed", tenant=tenant, concurrency_key="k")
        await claim_one(store)
    await clock.advance(61)
    for tenant in ("acme", "other"):
        (load,) = await store.queue_loads(tenant=tenant)
        assert (load.blocked, load.running, load.expired) == (2, 1, 1)
    assert [lease.tenant for lease in await store.leases(tenant="acme", lapsed=True)] == ["acme"]


async def test_dead_letters_of_one_tenant(store, monkeypatch):
    monkeypatch.setattr(views, "CAP", 2)
    await put(store, 2, "job:a", tenant="acme")
    await finish(store, await claim(store), FAILED)
    await put(store, 5, "job:b", tenant="other")
    await finish(store, await claim(store), FAILED)
    assert [(g.type, g.count) for g in await store.dead_letter_groups(tenant="acme")] == [
        ("job:a", 2)
    ]
    assert [(g.type, g.count) for g in await store.dead_letter_groups()] == [("job:b", 2)]
    assert await store.dead_letter_groups(tenant="nobody") == []


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_an_empty_store_has_nothing_for_anybody(store, tenant):
    assert await store.events(tenant=tenant) == []
    assert await store.leases(tenant=tenant) == []
    assert await store.queue_loads(tenant=tenant) == []
    assert await store.dead_letter_groups(tenant=tenant) == []


async def test_a_store_in_the_name_of_a_tenant_is_the_same_store(store):
    acme = store.as_tenant("acme")
    id = await put_one(acme, tenant="acme")
    assert (await store.get(id)).tenant == (await acme.get(id)).tenant == "acme"
    assert (await store.as_tenant(None).get(id)).id == id
    assert not await acme.is_walled(), "whoever owns the tables passes every wall"
    for name in ("*", "", "a b"):
        with pytest.raises(InvalidInput, match="is not a name"):
            store.as_tenant(name)


async def test_a_wall_needs_a_database_with_roles(store, keeper):
    if keeper.dialect == "sqlite":
        with pytest.raises(InvalidInput, match="needs PostgreSQL"):
            await store.wall("anybody")
