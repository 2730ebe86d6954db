"""The views for people with a SQL prompt, where SQLite's own ways could show."""

from holdfast.answers import WorkerRecord
from tests.contract.acts import FAILED, claim, claim_one, finish, put, put_one, retry
from tests.sqlite.acts import peek


async def _jobs(driver, *columns):
    rows = await peek(driver, f"select job_id, {', '.join(columns)} from processing_jobs")
    return {row[0]: row[1:] for row in rows}


async def test_a_worker_without_slots_divides_by_nothing(store, driver):
    await store.register(WorkerRecord(id=1, name="w"))
    await peek(driver, "update worker set slots = 0")
    assert await peek(driver, "select utilization from worker_utilization") == [(0.0,)]
    await put(store, 2)
    await claim(store, 2, worker=1)
    assert await peek(driver, "select utilization from worker_utilization") == [(2.0,)]


async def test_jobs_are_told_in_five_words(store, driver):
    ended = {"done": {}, "failed": {"settlement": FAILED}, "retry": {"settlement": retry(60)}}
    for word, how in ended.items():
        await put_one(store, key=word)
        await finish(store, await claim_one(store), **how)
    await put_one(store, key="processing")
    await claim_one(store)
    await store.cancel([await put_one(store, key="cancelled")])
    await put_one(store, key="pending")
    words = await _jobs(driver, "status")
    assert words.pop("cancelled") == ("failed",)
    assert words == {word: (word,) for word in [*ended, "processing", "pending"]}


async def test_a_job_was_updated_when_something_happened_last(store, driver, clock):
    id = str(await put_one(store))

    async def updated() -> str:
        ((at,),) = await peek(driver, "select updated_at from processing_jobs")
        return str(at)

    seen = [await updated()]
    clock.advance(60)
    task = await claim_one(store)
    seen.append(await updated())
    clock.advance(60)
    await finish(store, task, retry())
    seen.append(await updated())
    clock.advance(60)
    await finish(store, await claim_one(store))
    seen.append(await updated())
    assert len(set(seen)) == 4
    assert seen == sorted(seen)
    assert await peek(driver, "select finished_at from tasks") == [(seen[-1],)]
    assert list(await _jobs(driver, "id")) == [id]
