"""A task that stands in two places, which no verb does, wedges nothing and surprises nobody."""

from datetime import timedelta

import pytest

from holdfast.errors import StoreError
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import FAILED, claim_one, finish, put_one, status_of

LATER = """
insert into holdfast.later (id, run_at, lane, fence, np, tries, alone, child)
select id, now(), lane, 1, 0, 0, false, false from holdfast.task where id = $1
"""


@pytest.fixture
async def failed(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), FAILED)
    return id


async def test_an_ended_task_that_waits_for_its_time_does_not_hold_up_the_others(
    store, conn, failed
):
    await conn.execute("update holdfast.task set cancel_requested = true where id = $1", failed)
    delayed = await put_one(store, delay=timedelta(milliseconds=1))
    await conn.execute(LATER, failed)
    await conn.execute("select pg_sleep(0.01)")
    assert await store.promote() == 1
    assert (await claim_one(store)).lease.task == delayed
    assert await status_of(store, failed) is TaskStatus.FAILED


async def test_a_dead_letter_that_waits_for_its_time_gets_its_new_life(store, conn, failed):
    await conn.execute(LATER, failed)
    assert await store.retry([failed]) == {failed}
    assert (await claim_one(store)).lease.task == failed


async def test_what_cannot_be_put_right_is_told_in_our_own_words(store, conn, failed):
    await conn.execute(
        """
        create function holdfast.keeps() returns trigger
        language plpgsql as 'begin return null; end';
        create trigger keeps before delete on holdfast.later
        for each row execute function holdfast.keeps()
        """
    )
    await conn.execute(LATER, failed)
    with pytest.raises(StoreError, match="stands in two places"):
        await store.retry([failed])
