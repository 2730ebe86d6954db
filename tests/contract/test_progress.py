"""Progress: how far a task says it is, and what it saves for its next attempt."""

import pytest

from holdfast.errors import InvalidInput, PayloadRefused
from tests.contract.acts import claim_one, finish, put_one, retry, seconds


async def test_progress_is_shown(store, clock):
    id = await put_one(store)
    lease = (await claim_one(store)).lease
    await store.progress(lease, 25, "a quarter")
    task = await store.get(id)
    assert (task.progress, task.progress_message) == (25.0, "a quarter")
    await clock.advance(5)
    await store.progress(lease, 50)
    progress = await store.saved(id)
    assert (progress.percent, progress.message, progress.saved) == (50.0, None, None)
    assert progress.updated_at - task.created_at == seconds(5)


async def test_a_task_that_reports_nothing_has_no_progress(store):
    id = await put_one(store)
    assert await store.saved(id) is None
    assert (await store.get(id)).progress is None


async def test_saved_state_survives_the_attempt(store, clock):
    id = await put_one(store)
    await store.progress((await claim_one(store)).lease, 40, "on", b'{"row":\x0040}')
    await clock.advance(61)
    await store.recover()
    assert (await store.saved(id)).saved == b'{"row":\x0040}'
    await finish(store, await claim_one(store), retry())
    assert (await store.saved(id)).saved == b'{"row":\x0040}'


async def test_a_report_without_state_keeps_what_was_saved(store):
    id = await put_one(store)
    lease = (await claim_one(store)).lease
    await store.progress(lease, 40, saved=b"[40]")
    await store.progress(lease, 60)
    await store.progress(lease, 60, saved=b"[60]")
    await store.progress(lease, 80)
    progress = await store.saved(id)
    assert (progress.percent, progress.saved) == (80.0, b"[60]")


@pytest.mark.parametrize("percent", [-1, 100.1, float("nan"), float("inf")])
async def test_progress_lies_between_nothing_and_all(store, dump, percent):
    await put_one(store)
    lease = (await claim_one(store)).lease
    before = await dump()
    with pytest.raises(InvalidInput, match="from 0 to 100"):
        await store.progress(lease, percent)
    assert await dump() == before


async def test_a_state_that_is_too_large_is_refused(store, dump):
    await put_one(store)
    lease = (await claim_one(store)).lease
    before = await dump()
    with pytest.raises(PayloadRefused, match="over the limit"):
        await store.progress(lease, 1, saved=b" " * (1024 * 1024 + 1))
    assert await dump() == before


@pytest.mark.parametrize("message", ["NUL \0", "half \ud800 a pair", "x" * 10_000], ids=repr)
async def test_messages_that_no_database_can_hold_are_made_plain(store, message):
    id = await put_one(store)
    await store.progress((await claim_one(store)).lease, 10, message)
    shown = (await store.get(id)).progress_message
    assert shown
    assert "\0" not in shown
    assert len(shown) <= 1000
