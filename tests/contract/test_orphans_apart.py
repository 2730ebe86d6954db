"""On PostgreSQL children that a parent left are cancelled while others write."""

import asyncio

from tests.contract.acts import FAILED, claim_one, finish, put, put_one

ONLY = "postgres"


async def test_a_retry_waits_for_a_cancel_of_what_the_parent_left(store, keeper):
    """Else the next life could take up children that are about to be cancelled."""
    parent = await put_one(store)
    held = await claim_one(store)
    (child,) = await put(store, 1, "job:child", parent=parent)
    await finish(store, held, FAILED)
    async with keeper.transaction(keep=True) as conn:
        await keeper.driver.call_on(conn, "request_cancel", ids=[child], rule="left")
        retrying = asyncio.create_task(store.retry([parent]))
        await asyncio.sleep(0.2)
        assert not retrying.done()
    assert await retrying == {parent}
    assert (await store.get(child)).cancel_requested
