"""Tenants side by side: limits of their own, and nobody waits behind another's backlog."""

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import InvalidInput
from holdfast.explain import explain
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lane import Serving
from holdfast.tasks.limits import Limit, Rate
from holdfast.work.claiming import Claiming
from holdfast.work.holding import Holding
from tests.contract.acts import (
    MINUTE,
    TYPE,
    WORKER,
    ask,
    claim,
    claim_one,
    finish,
    ids_of,
    put,
    put_one,
    seconds,
)


def _tenants(claimed) -> list[str]:
    return sorted(c.lane.tenant for c in claimed)


async def test_a_tenant_runs_no_more_tasks_than_its_limit(store):
    await store.limit("tenant", "acme", Limit(max_running=3))
    await put(store, 5, "job:a", tenant="acme", queue="q")
    await put(store, 5, "job:b", tenant="acme", queue="r")
    await put(store, 5, "job:a", tenant="other", queue="q")
    claimed = await claim(store)
    assert _tenants(claimed) == ["acme"] * 3 + ["other"] * 5
    assert (await ask(store)).full
    await finish(store, [c for c in claimed if c.lane.tenant == "acme"][:2])
    assert _tenants(await claim(store)) == ["acme"] * 2


async def test_a_limit_counts_what_runs_already_and_is_lifted(store):
    await put(store, 6, tenant="acme")
    await claim(store, 2)
    await store.limit("tenant", "acme", Limit(max_running=3))
    assert len(await claim(store)) == 1
    await store.limit("tenant", "acme", Limit())
    assert len(await claim(store)) == 3


async def test_a_tenants_limit_holds_beside_those_of_its_function_and_queue(store):
    await store.limit("tenant", "acme", Limit(max_running=4))
    await store.limit("type", TYPE, Limit(max_running=5))
    await store.limit("queue", "default", Limit(max_running=6))
    await put(store, 9, tenant="acme")
    await put(store, 9, tenant="other")
    await put(store, 9, "job:b", tenant="other")
    await put(store, 9, "job:b", tenant="other", queue="wide")
    taken = [c for _ in range(4) for c in await claim(store)]
    assert sum(c.lane.tenant == "acme" for c in taken) <= 4
    assert sum(c.lane.type == TYPE for c in taken) <= 5
    assert sum(c.lane.queue == "default" for c in taken) == 6
    assert sum(c.lane.queue == "wide" for c in taken) == 9


async def test_a_tenants_rate_holds_in_every_window(store, clock):
    await store.limit("tenant", "acme", Limit(rate=Rate(count=3, period=60.0, burst=3)))
    await put(store, 10, "job:a", tenant="acme")
    await put(store, 10, "job:b", tenant="acme")
    assert len(await claim(store)) == 3
    answer = await ask(store)
    assert (answer.tasks, answer.full) == ([], True)
    assert answer.next_due == pytest.approx(60, abs=1)
    await clock.advance(61)
    assert len(await claim(store)) == 1


async def test_a_queue_a_function_and_a_tenant_of_one_name_have_limits_of_their_own(store):
    for kind, most in (("type", 5), ("queue", 4), ("tenant", 3)):
        await store.limit(kind, "same", Limit(max_running=most))
    await put(store, 9, "same", tenant="x")
    assert len(await claim(store)) == 5
    await put(store, 9, "job:q", queue="same", tenant="x")
    assert len(await claim(store)) == 4
    await put(store, 9, "job:t", tenant="same")
    assert len(await claim(store)) == 3


async def test_a_limit_per_key_belongs_to_a_function(store, dump):
    before = await dump()
    with pytest.raises(InvalidInput, match="not to a tenant"):
        await store.limit("tenant", "acme", Limit(max_per_key=1))
    with pytest.raises(InvalidInput, match="tenant 'a b' is not a name"):
        await store.limit("tenant", "a b", Limit(max_running=1))
    with pytest.raises(InvalidInput, match="type, queue or tenant"):
        await store.limit("worker", "w", Limit(max_running=1))
    assert await dump() == before


async def test_a_task_behind_its_tenants_limit_says_so(store):
    await store.limit(
        "tenant", "acme", Limit(max_running=1, rate=Rate(count=9, period=60.0, burst=9))
    )
    first, second = await put(store, 2, tenant="acme")
    held = await claim_one(store)
    assert held.lease.task == first
    standing = await store.standing(second)
    (gate,) = standing.gates
    assert (gate.kind, gate.name, gate.max_running, gate.running) == ("tenant", "acme", 1, 1)
    assert standing.occupied_by == (first,)
    said = [str(reason) for reason in explain(standing, [])]
    assert any("tenant 'acme' may run 1 at once, and 1 run" in reason for reason in said)


# ── turns ────────────────────────────────────────────────────────────────────────────────────


async def _nothing() -> None:
    pass


def _worker(store: SqlStore) -> Claiming:
    """What a worker asks with, which remembers whom it served last."""
    serving = Serving()
    return Claiming(
        store,
        Holding(SystemClock(), 60.0),
        worker=WORKER,
        serving=lambda: serving,
        declare=_nothing,
        lease=MINUTE,
        renewal=seconds(20),
        durable=lambda: False,
    )


@pytest.mark.parametrize("limit", [None, 1000])
async def test_a_tenants_single_task_does_not_wait_behind_anothers_backlog(store, limit):
    if limit:
        await store.limit("tenant", "big", Limit(max_running=limit))
    await put(store, 10_000, tenant="big")
    worker = _worker(store)
    assert _tenants((await worker.claim(10, 0)).tasks) == ["big"] * 10
    first = await put_one(store, tenant="small")
    new = [await worker.claim(10, 0) for _ in range(2)]  # the first learns of the new lane
    assert new[0].again
    assert first in ids_of([*new[0].tasks, *new[1].tasks])
    for want in (10, 2, 1):
        single = await put_one(store, tenant="small")
        now = (await worker.claim(want, 0)).tasks
        # At a limit one tenant may have a whole claim; then it is the other's turn.
        then = [] if single in ids_of(now) else (await worker.claim(want, 0)).tasks
        assert single in ids_of([*now, *then])
        assert limit or single in ids_of(now) or want < 10
        assert _tenants((await worker.claim(5, 0)).tasks) == ["big"] * 5
