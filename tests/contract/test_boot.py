"""SQLite's clock is each process's own: leases are judged by boot time, which nobody can set."""

import pytest

from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    MINUTE,
    claim,
    claim_one,
    finish,
    ids_of,
    put_one,
    seconds,
    status_of,
)

ONLY = "sqlite"
YEAR = 366 * 86400 * 1_000_000


@pytest.fixture(autouse=True)
def clock_put_right(keeper):
    """What was set is set back: the tests share a clock."""
    wall, boot_id = keeper.clock.wall(), keeper.clock.boot_id
    yield
    keeper.clock.set_wall(wall)
    keeper.clock.boot_id = boot_id


@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=["ahead", "back"])
async def test_setting_the_wall_clock_takes_no_lease_away(store, keeper, jump):
    id = await put_one(store)
    claimed = await claim_one(store)
    keeper.clock.set_wall(keeper.clock.wall() + jump)
    assert await store.recover() == []
    assert await store.leases(lapsed=True) == []
    await finish(store, claimed)
    assert await status_of(store, id) is TaskStatus.DONE


async def test_setting_the_wall_clock_back_keeps_no_lease_alive(store, keeper, clock):
    id = await put_one(store)
    await claim_one(store)
    keeper.clock.set_wall(keeper.clock.wall() - YEAR)
    await clock.advance(61)
    assert [r.lease.task for r in await store.recover()] == [id]


async def test_leases_of_a_former_boot_have_lapsed(store, keeper):
    id = await put_one(store)
    await claim_one(store, lease=seconds(86400))
    keeper.clock.reboot()
    assert [r.lease.task for r in await store.recover()] == [id]
    assert ids_of(await claim(store)) == [id]


async def test_a_lease_renewed_after_a_boot_is_of_this_boot(store, keeper, clock):
    await put_one(store)
    lease = (await claim_one(store)).lease
    keeper.clock.reboot()
    assert (await store.renew([lease], MINUTE)).lost == frozenset()
    assert await store.recover() == []
    await clock.advance(61)
    assert len(await store.recover()) == 1


async def test_times_to_run_at_are_wall_time(store, keeper):
    id = await put_one(store, delay=seconds(3600))
    keeper.clock.set_wall(keeper.clock.wall() + 3601 * 1_000_000)
    assert ids_of(await claim(store)) == [id]
