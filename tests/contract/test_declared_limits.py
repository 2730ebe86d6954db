"""Two who set limits: a function's code, and an operator whose word goes before it."""

import pytest

from holdfast.errors import InvalidInput
from holdfast.tasks.limits import Limit, Rate
from tests.contract.acts import TYPE, claim, put

TWO, THREE, FIVE = (Limit(max_running=many) for many in (2, 3, 5))


async def _declare(store, limit):
    await store.limit("type", TYPE, limit, declared=True)


async def _in_force(store):
    return {(one.kind, one.name): one.limit for one in await store.limits()}


async def test_the_last_code_that_speaks_is_right(store):
    await put(store, 10)
    await _declare(store, FIVE)
    await _declare(store, TWO)
    assert len(await claim(store)) == 2
    await _declare(store, Limit())
    assert len(await claim(store)) == 8
    assert await store.limits() == []


async def test_an_operators_word_goes_before_the_code_until_it_is_lifted(store):
    await put(store, 10)
    await _declare(store, FIVE)
    await store.limit("type", TYPE, TWO)
    await _declare(store, THREE)
    assert len(await claim(store)) == 2
    (record,) = await store.limits()
    assert (record.limit, record.declared, record.held, record.running) == (TWO, THREE, True, 2)
    await store.limit("type", TYPE, Limit())
    assert await _in_force(store) == {("type", TYPE): THREE}
    assert len(await claim(store)) == 1


async def test_code_without_a_limit_does_not_lift_the_operators(store):
    await put(store, 10)
    await store.limit("type", TYPE, TWO)
    await _declare(store, Limit())
    assert len(await claim(store)) == 2
    await store.limit("type", TYPE, Limit())
    assert len(await claim(store)) == 8


async def test_limits_are_shown_as_they_were_said(store):
    rate = Rate.parse("100/m", burst=7)
    all_of_it = Limit(max_running=4, max_per_key=2, rate=rate)
    await store.limit("type", TYPE, all_of_it)
    await store.limit("queue", "mail", Limit(rate=rate))
    await store.limit("tenant", "acme", THREE)
    assert await _in_force(store) == {
        ("queue", "mail"): Limit(rate=rate),
        ("tenant", "acme"): THREE,
        ("type", TYPE): all_of_it,
    }
    running = {one.kind: one.running for one in await store.limits()}
    assert running == {"queue": None, "tenant": 0, "type": 0}


@pytest.mark.parametrize("kind", ["queue", "tenant"])
async def test_code_says_nothing_of_queues_and_tenants(store, kind):
    with pytest.raises(InvalidInput, match="code declares limits of functions"):
        await store.limit(kind, "mail", TWO, declared=True)
    assert await store.limits() == []
