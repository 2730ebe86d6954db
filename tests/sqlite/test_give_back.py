"""A task that goes back to its place and finds it taken stands elsewhere: none is ever dropped."""

import pytest

from tests.contract.acts import HANDED_BACK, claim, claim_one, finish, ids_of, put
from tests.sqlite.acts import peek


@pytest.mark.parametrize("key", [None, "k"], ids=["in its lane", "behind its key"])
async def test_a_place_that_is_taken_is_left_and_another_found(store, driver, key):
    ids = await put(store, 3, concurrency_key=key)
    held = await claim_one(store)
    table = "ready" if key is None else "blocked"
    if key:  # the others wait behind their key again
        await peek(
            driver,
            "insert into blocked (pool, key, np, seq, id, lane, fence, tries, alone, child) "
            "select l.pool, r.key, r.np, r.seq, r.id, r.lane, r.fence, r.tries, r.alone, r.child "
            "from ready r join lane l on l.id = r.lane",
        )
        await peek(driver, "insert into nudge select pool, key, count(*) from blocked")
        await peek(driver, "delete from ready")
    await peek(
        driver,
        f"update {table} set seq = (select seq from lease) where id = x'{ids[2].hex}'",
    )
    await finish(store, held, HANDED_BACK)
    assert ids_of(await claim(store)) == [ids[2], ids[1], ids[0]]


async def test_a_place_that_is_free_is_taken_again(store):
    ids = await put(store, 3)
    held = await claim(store, 2)
    await finish(store, held, HANDED_BACK)
    assert ids_of(await claim(store)) == ids


async def test_one_that_stands_there_already_does_not_stand_twice(store, driver):
    await put(store, 1)
    held = await claim_one(store)
    await peek(
        driver,
        "insert into ready (lane, np, seq, id, fence, tries, alone, child) "
        "select lane, np, seq, id, fence, 0, 0, 0 from lease",
    )
    await finish(store, held, HANDED_BACK)
    assert ids_of(await claim(store)) == [held.lease.task]
