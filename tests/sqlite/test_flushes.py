"""Which commits wait for the disk: all but those of children that may begin before it has them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.answers import Step, Taking
from holdfast.clock import ManualClock
from holdfast.errors import UnknownTask
from holdfast.ids import new_grant
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver
from holdfast.tasks.task import Lease
from tests.contract.acts import DONE, MINUTE, WORKER, claim_one, draft, put_one
from tests.powercut import Disk, disk

__all__ = ["disk"]


@pytest_asyncio.fixture
async def driver(path: Path, clock: ManualClock, disk: Disk) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(path, clock=clock)
    await driver.migrate()
    yield driver
    await driver.close()


async def _parent(store: SqlStore) -> Lease:
    await put_one(store)
    return (await claim_one(store)).lease


async def _ask(store: SqlStore, parent: Lease, *, durable: bool) -> Lease:
    """A child, and how it is held."""
    child = draft(parent=parent.task)
    taking = Taking(worker=WORKER, grant=new_grant(), lease=MINUTE, most=1, durable=durable)
    step = Step(position=0, kind="child", name="work", value=b"{}")
    written = await store.record(parent, [step], children=[child], taking=taking)
    assert written.leased == {child.id}
    return Lease(child.id, taking.grant, 1)


async def _is_left(task: Lease, path: Path, disk: Disk) -> bool:
    """Whether it is known after a power cut in this moment."""
    driver = SqliteDriver(disk.cut_power(path))
    try:
        await SqlStore(driver).get(task.task)
    except UnknownTask:
        return False
    finally:
        await driver.close()
    return True


@pytest.mark.parametrize("durable", [True, False])
async def test_a_child_waits_for_the_disk_unless_it_need_not(store, path, disk, durable):
    child = await _ask(store, await _parent(store), durable=durable)
    assert await _is_left(child, path, disk) is durable
    await store.settle([(child, DONE)])
    assert await _is_left(child, path, disk)


async def test_a_callers_transaction_waits_for_the_disk(store, driver, path, disk):
    child = await _ask(store, await _parent(store), durable=False)
    async with driver.transaction() as conn:
        await store.enqueue([draft()], conn=conn)
    assert await _is_left(child, path, disk)


async def test_what_comes_together_with_such_a_child_waits_for_the_disk(store, driver, path, disk):
    parent = await _parent(store)
    async with driver.transaction():  # both come while somebody else writes
        asking = asyncio.create_task(_ask(store, parent, durable=False))
        putting = asyncio.create_task(put_one(store, delay=MINUTE))
        for _ in range(20):
            await asyncio.sleep(0)
    await asking
    put = Lease(await putting, new_grant(), 1)
    assert await _is_left(put, path, disk)
