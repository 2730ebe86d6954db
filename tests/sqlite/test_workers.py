"""The registry of workers: who has signed off stays so."""

import pytest

from holdfast.answers import WorkerRecord
from tests.sqlite.acts import peek

WORKER = WorkerRecord(id=77, name="w", slots=4)


async def _status(store):
    return {worker.id: worker.status for worker in await store.workers()}


@pytest.mark.parametrize("verb", ["register", "beat"])
async def test_a_beat_that_was_under_way_does_not_bring_a_worker_back(store, verb):
    await store.register(WORKER)
    await store.sign_off(WORKER.id)
    (before,) = await store.workers()
    await getattr(store, verb)(WORKER)
    assert await store.workers() == [before]
    assert before.status == "stopped"


async def test_a_stale_worker_that_beats_is_there_again(store, driver):
    await store.register(WORKER)
    await peek(driver, "update worker set status = 'stale'")
    await store.beat(WORKER)
    assert await _status(store) == {77: WORKER.status}


async def test_a_new_start_has_a_new_id(store):
    await store.register(WORKER)
    await store.sign_off(WORKER.id)
    await store.register(WorkerRecord(id=78, name="w", slots=4))
    assert await _status(store) == {77: "stopped", 78: WORKER.status}
