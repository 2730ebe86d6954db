"""The public SQL: people's queries run as they are written, and answer right."""

from typing import Any

import pytest

from holdfast.answers import WorkerRecord
from holdfast.ids import new_id
from holdfast.tasks.limits import Limit
from tests.contract.acts import (
    FAILED,
    OTHER,
    WORKER,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    seconds,
    waiting,
)

ACTIVE_WORKERS = """
SELECT locked_by, COUNT(*) as active_tasks
FROM tasks
WHERE status = 'running' AND lease_timeout > NOW()
GROUP BY locked_by;
"""
RETRIES = """
SELECT id, type, try_count, max_tries, status
FROM tasks
WHERE try_count > 0
ORDER BY try_count DESC;
"""
STALE = """
SELECT id, type, locked_by, lease_timeout
FROM tasks
WHERE status = 'running' AND lease_timeout < NOW();
"""
JOBS_WAITING = "SELECT * FROM processing_jobs WHERE status IN ('pending', 'retry') LIMIT 10;"
JOBS_LOCKED = "SELECT * FROM processing_jobs WHERE locked_until > NOW();"
JOBS_EXPIRED = "SELECT * FROM processing_jobs WHERE locked_until < NOW() AND status = 'processing';"
JOBS_FAILED = """
SELECT id, job_id, attempts, last_error
FROM processing_jobs
WHERE status = 'failed'
ORDER BY updated_at DESC
LIMIT 10;
"""
COLUMNS = {
    "tasks": "id type status queue priority tenant_id locked_by lease_timeout try_count max_tries "
    "last_error progress created_at run_at started_at finished_at user_id",
    "processing_jobs": "id job_id status attempts locked_by locked_until last_error updated_at "
    "progress",
    "workers": "id hostname status capabilities max_concurrent active last_heartbeat",
    "active_leases": "task_id type queue locked_by worker_id fence try_count started_at "
    "lease_timeout time_left",
    "stale_leases": "task_id type queue locked_by worker_id fence try_count started_at "
    "lease_timeout late_by",
    "worker_utilization": "id name status max_concurrent active utilization last_heartbeat",
    "queue_load": "queue paused ready scheduled waiting blocked running",
    "dead_letters": "id type queue tenant_id try_count error_type last_error ended_by created_at "
    "finished_at",
}


@pytest.fixture
def cast(store, clock):
    """Two workers; one holds two tasks, the other one whose lease has lapsed."""

    async def play() -> dict[str, Any]:
        await store.register(WorkerRecord(id=WORKER, name="a:1", host="a", slots=4))
        await store.register(WorkerRecord(id=OTHER, name="b:2", host="b", slots=2))
        lapsed = await put_one(store, "job:slow", max_tries=3)
        await clock.advance(-1000)  # the database's own NOW() must find it lapsed
        await claim_one(store, worker=OTHER)
        await clock.advance(1000)
        held = await put(store, 2, "job:quick", queue="vip")
        await claim(store)
        return {"lapsed": lapsed, "held": held}

    return play


async def test_the_active_workers_are_counted(cast, peek):
    await cast()
    assert await peek(ACTIVE_WORKERS) == [("a:1", 2)]


async def test_stale_leases_are_seen(cast, peek):
    ids = await cast()
    ((id, type, locked_by, lease_timeout),) = await peek(STALE)
    assert (str(id), type, locked_by) == (str(ids["lapsed"]), "job:slow", "b:2")
    assert lease_timeout is not None


async def test_retries_are_seen_most_tries_first(store, clock, peek):
    once, twice, never = await put(store, 3, max_tries=5)
    for _ in range(2):
        await finish(store, (await claim(store))[:2], retry())
    await finish(store, (await claim(store, 1)), FAILED)
    await clock.advance(61)
    await store.recover()
    rows = [(str(id), *rest) for id, *rest in await peek(RETRIES)]
    assert rows[0] == (str(once), "shop.orders:charge", 3, 5, "failed")
    assert sorted(rows[1:], key=lambda row: -row[2]) == rows[1:]
    assert {row[0]: row[2:] for row in rows[1:]}[str(twice)] == (2, 5, "pending")
    assert str(never) in {row[0] for row in rows}


async def test_the_status_words_are_the_six(store, peek, keeper):
    ids = await put(store, 6)
    done, failed, wait, *_ = await claim(store, 4)
    await finish(store, done)
    await finish(store, failed, FAILED)
    await finish(store, wait, waiting())
    await store.cancel([ids[4]])
    rows = {str(id): status for id, status in await peek("select id, status from tasks")}
    assert [rows[str(id)] for id in ids] == [
        "done",
        "failed",
        "waiting",
        "running",
        "cancelled",
        "pending",
    ]


async def test_the_jobs_of_the_older_interface_are_seen(store, clock, cast, peek):
    ids = await cast()
    fresh = await put_one(store, key="my-job-123")
    tried, broken = await put(store, 2, "job:x", priority=9)
    first, second = await claim(store, 2)
    await finish(store, first, retry(600))
    await finish(store, second, FAILED)

    waiting_jobs = {row[1]: row for row in await peek(JOBS_WAITING)}
    assert waiting_jobs.keys() == {"my-job-123", str(tried)}
    assert waiting_jobs["my-job-123"][2:4] == ("pending", 0)
    assert str(waiting_jobs["my-job-123"][0]) == str(fresh)
    assert waiting_jobs[str(tried)][2:4] == ("retry", 1)
    locked = {str(row[0]): row[2:5] for row in await peek(JOBS_LOCKED)}
    assert locked == {str(id): ("processing", 1, "a:1") for id in ids["held"]}
    assert [str(row[0]) for row in await peek(JOBS_EXPIRED)] == [str(ids["lapsed"])]
    ((id, job_id, attempts, error),) = await peek(JOBS_FAILED)
    assert (str(id), job_id, attempts, error) == (str(broken), str(broken), 1, "it broke")


@pytest.mark.parametrize(("view", "columns"), COLUMNS.items(), ids=COLUMNS)
async def test_the_views_have_their_columns(peek, view, columns):
    assert await peek(f"select {', '.join(columns.split())} from {view}") == []


async def test_leases_are_active_or_stale(cast, peek):
    ids = await cast()
    active = await peek("select task_id, locked_by, try_count from active_leases")
    assert {(str(id), *rest) for id, *rest in active} == {(str(id), "a:1", 1) for id in ids["held"]}
    stale = await peek("select task_id, type, locked_by, fence from stale_leases")
    assert [(str(id), *rest) for id, *rest in stale] == [(str(ids["lapsed"]), "job:slow", "b:2", 1)]


async def test_the_use_of_the_workers_is_seen(store, cast, peek):
    await cast()
    await store.register(WorkerRecord(id=33, name="gone"))
    await store.sign_off(33)
    rows = await peek("select name, max_concurrent, active, utilization from worker_utilization")
    assert {(name, most, active, float(use)) for name, most, active, use in rows} == {
        ("a:1", 4, 2, 0.5),
        ("b:2", 2, 1, 0.5),
    }
    names = await peek("select hostname, status, max_concurrent, active from workers")
    assert set(names) == {("a", "ready", 4, 2), ("b", "ready", 2, 1), ("", "stopped", 1, 0)}


async def test_the_load_of_the_queues_is_seen(store, peek):
    await store.limit("type", "job:keyed", Limit(max_per_key=1))
    await put(store, 2, "job:keyed", concurrency_key="k")
    await put_one(store, priority=-1)
    held = await claim(store)
    await finish(store, held[1], waiting())
    await put(store, 3)
    await put_one(store, delay=seconds(60))
    await store.pause("default")
    ((queue, paused, *numbers),) = await peek(
        "select queue, paused, ready, scheduled, waiting, blocked, running from queue_load"
    )
    assert (queue, bool(paused), numbers) == ("default", True, [3, 1, 1, 1, 1])


async def test_dead_letters_are_seen(store, peek):
    id = await put_one(store, queue="vip", tenant="acme")
    await finish(store, await claim_one(store), FAILED)
    await put_one(store)
    await finish(store, await claim_one(store))
    rows = await peek(
        "select id, queue, tenant_id, try_count, error_type, last_error, ended_by from dead_letters"
    )
    assert [(str(row[0]), *row[1:]) for row in rows] == [
        (str(id), "vip", "acme", 1, "Boom", "it broke", "holder")
    ]
    assert str(new_id()) != str(id)
