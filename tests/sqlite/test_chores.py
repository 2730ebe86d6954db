"""Chores cost what they do, not what there is."""

from datetime import timedelta

import pytest

from holdfast.stores.sqlite.session import STATEMENTS
from tests.contract.acts import FAILED, claim, finish, ids_of, put, put_one, waiting
from tests.sqlite.acts import peek

PLANS = {
    "wake.all_come": ("SEARCH l USING PRIMARY KEY (id=?)", "SCAN l"),
    "watchers": ("SEARCH w USING PRIMARY KEY (task=?)", "SCAN w"),
    "in_vain": ("SEARCH x USING PRIMARY KEY (task=?)", "SCAN x"),
    "watching.all": ("SEARCH x USING PRIMARY KEY (task=?)", "SCAN l"),
    "cleanup.ended": ("outcome_ended (finished_at<?)", "SCAN o"),
    "cleanup.failed": ("outcome_failed (finished_at<?)", "SCAN o"),
    "nudge.keys": ("nudge_order (pool=?)", "TEMP B-TREE"),
    "loads.scheduled": ("later_due", "SCAN w"),
    "loads.failed": ("outcome_undone (state=?)", "SCAN o"),
}


@pytest.mark.parametrize("name", PLANS)
async def test_each_looks_only_where_there_is_something(store, driver, name):
    sql, names = STATEMENTS[name]
    async with driver.transaction() as conn:
        rows = await conn.execute(f"explain query plan {sql}", [None] * len(names))
    plan = "\n".join(row[3] for row in rows)
    wanted, unwanted = PLANS[name]
    assert wanted in plan
    assert unwanted not in plan


async def test_the_sweep_finds_all_who_were_woken_among_many_who_were_not(store, driver):
    ids = await put(store, 60)
    await finish(store, await claim(store), waiting(wakes=2))
    woken = sorted(ids[10:20])
    for id in woken:  # as if the ones who wake them had died before they moved them
        for _ in range(2):
            await peek(driver, f"insert into wake (id, urgent) values (x'{id.hex}', 0)")
    half = ids[30]
    await peek(driver, f"insert into wake (id, urgent) values (x'{half.hex}', 0)")
    assert await store.sweep_wakes(batch=4) == 4
    assert await store.sweep_wakes() == 6
    assert await store.sweep_wakes() == 0
    assert sorted(ids_of(await claim(store))) == woken


async def test_a_cleanup_takes_the_oldest_first_and_only_the_old(store, clock):
    await put(store, 4)
    for task in await claim(store, 4):
        await finish(store, task)
        clock.advance(10)
    assert await store.cleanup(timedelta(seconds=15), batch=2) == 2
    assert await store.cleanup(timedelta(seconds=15), batch=2) == 1
    assert await store.cleanup(timedelta(seconds=15), batch=2) == 0


async def test_a_cleanup_looks_past_a_clock_that_was_ahead(store, clock):
    """What ended in the future, by a clock set right since, hides nothing that is old."""
    wall = clock.wall()
    clock.set_wall(wall + 10**15)
    await put_one(store)
    await finish(store, await claim(store))
    clock.set_wall(wall)
    await put_one(store)
    await finish(store, await claim(store))
    clock.advance(60)
    assert await store.cleanup(timedelta(seconds=30)) == 1


async def test_dead_letters_have_their_own_time(store, clock):
    await put(store, 2)
    done, failed = await claim(store, 2)
    await finish(store, done)
    await finish(store, failed, FAILED)
    clock.advance(60)
    day = timedelta(days=1)
    assert await store.cleanup(timedelta(seconds=30)) == 1
    assert await store.cleanup(timedelta(seconds=30), dead_letters=day) == 0
    clock.advance(86400)
    assert await store.cleanup(timedelta(seconds=30), dead_letters=day) == 1
