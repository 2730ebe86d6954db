"""The class-based worker: the same promises as `serve()`, in the words of its view."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, Job, LeaseLost, ProcessingWorker, current
from tests.waiting import eventually

SQL = "select job_id, status, attempts, last_error, progress from processing_jobs order by job_id"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any, fresh_database: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return str(fresh_database(request.getfixturevalue("postgres_current")))


class Worker(ProcessingWorker):
    """Does what the test says, and tells how it went."""

    def __init__(self, store: str, act: Callable[..., Any], **options: Any) -> None:
        super().__init__(store, **{"worker_id": "my-worker-1", "poll_interval_ms": 50, **options})
        self.act = act
        self.seen: asyncio.Queue[Job] = asyncio.Queue()

    async def process_job(self, job: Job) -> None:
        self.seen.put_nowait(job)
        await self.act(self, job)


@asynccontextmanager
async def started(worker: ProcessingWorker) -> AsyncIterator[None]:
    await worker.start()
    try:
        yield
    finally:
        await worker.stop()


async def rows(app: Holdfast) -> list[tuple[Any, ...]]:
    """What somebody at a SQL prompt sees."""
    store = (await app.home.client()).store
    async with store.transaction() as conn:
        if app.home.is_sqlite:
            return [tuple(row) for row in await conn.execute(SQL)]
        return [tuple(row) for row in await conn.fetch(SQL)]


async def until(app: Holdfast, *expected: tuple[Any, ...]) -> None:
    async def reached() -> bool:
        return await rows(app) == list(expected)

    await eventually(reached)


async def nothing(worker: Worker, job: Job) -> None:
    pass


async def test_a_job_that_returns_is_done_and_shows_its_own_id(url):
    worker = Worker(url, nothing)
    async with started(worker):
        job = await worker.create(
            job_id="my-job-123", order_id="order-456", usb_capacity="32GB", status="pending",
            progress=0,
        )  # fmt: skip
        seen = await worker.seen.get()
        assert (seen.id, seen.job_id, seen.attempts, seen.status) == (
            job.id, "my-job-123", 1, "processing",
        )  # fmt: skip
        assert (seen.order_id, seen["usb_capacity"]) == ("order-456", "32GB")
        assert (job.job_id, job.order_id) == ("my-job-123", "order-456")
        await until(worker.app, ("my-job-123", "done", 1, None, 0))


async def test_the_same_job_id_again_is_the_same_job(tmp_path):
    worker = Worker(f"sqlite:///{tmp_path}/holdfast.db", nothing)
    first = await worker.create(job_id="a", order=1)
    assert (await worker.create(job_id="a", order=1)).id == first.id
    with pytest.raises(InvalidInput, match="'a'"):
        await worker.create(job_id="a", order=2)
    await worker.stop()


async def test_a_lease_is_released_the_moment_that_the_job_says_so(url):
    """It is written when `release_lease` returns, though the function goes on."""
    written, go = asyncio.Event(), asyncio.Event()

    async def act(worker: Worker, job: Job) -> None:
        await worker.app.update_progress(job.id, 50, "Halfway done")
        await worker.app.release_lease(job.id, worker.worker_id, job.how, job.get("error"))
        written.set()
        await go.wait()
        raise RuntimeError("too late to matter")

    worker = Worker(url, act)
    async with started(worker):
        await worker.create(job_id="a", how="done")
        await written.wait()
        await until(worker.app, ("a", "done", 1, None, 50))
        go.set()
    assert await rows(worker.app) == [("a", "done", 1, None, 50)]
    await worker.app.close()


async def test_a_job_released_as_failed_or_for_a_retry_says_why(url):
    async def act(worker: Worker, job: Job) -> None:
        how = job.how if job.attempts == 1 else "done"
        await worker.app.release_lease(job.id, worker.worker_id, how, "no paper")

    worker = Worker(url, act, max_concurrent_jobs=2)
    async with started(worker):
        await worker.create(job_id="a", how="failed")
        await worker.create(job_id="b", how="retry")
        await until(worker.app, ("a", "failed", 1, "no paper", 0), ("b", "done", 2, "no paper", 0))


async def test_a_job_that_raises_is_tried_again(tmp_path):
    async def act(worker: Worker, job: Job) -> None:
        if job.attempts == 1:
            raise OSError("printer on fire")

    worker = Worker(f"sqlite:///{tmp_path}/holdfast.db", act)
    async with started(worker):
        await worker.create(job_id="a")
        await until(worker.app, ("a", "done", 2, "printer on fire", 0))


async def test_only_the_attempt_itself_can_release_or_report(tmp_path):
    refused = asyncio.Queue[str]()

    async def act(worker: Worker, job: Job) -> None:
        for other in [(job.id, "somebody-else"), (job.other, worker.worker_id)]:
            try:
                await worker.app.release_lease(*other, "failed")
            except LeaseLost:
                refused.put_nowait("refused")
        try:
            await worker.app.update_progress(job.other, 10)
        except LeaseLost:
            refused.put_nowait("refused")

    worker = Worker(f"sqlite:///{tmp_path}/holdfast.db", act)
    idle = await worker.create(job_id="b", other="0" * 32)
    with pytest.raises(LeaseLost):
        await worker.app.release_lease(idle.id, worker.worker_id, "done")
    async with started(worker):
        await until(worker.app, ("b", "done", 1, None, 0))
        assert refused.qsize() == 3


async def test_a_zombie_cannot_release_what_was_recovered(tmp_path):
    refused = asyncio.Event()

    async def act(worker: Worker, job: Job) -> None:
        if job.attempts > 1:
            return
        store = (await worker.app.home.client()).store
        (lease,) = await store.leases()
        await store.revoke(job.id, lease.fence)
        await store.recover()
        try:
            await worker.app.release_lease(job.id, worker.worker_id, "failed")
        except LeaseLost:
            refused.set()

    worker = Worker(f"sqlite:///{tmp_path}/holdfast.db", act)
    async with started(worker):
        await worker.create(job_id="a")
        async with asyncio.timeout(60):
            await refused.wait()
        await until(worker.app, ("a", "done", 2, "its worker stopped renewing the lease", 0))


async def test_a_plain_function_runs_in_a_thread_and_reports_from_there(url):
    class Plain(ProcessingWorker):
        def process_job(self, job: Job) -> None:
            self.wait_for(self.app.update_progress(job.id, 50, "Halfway done"))
            self.wait_for(self.app.release_lease(job.id, self.worker_id, "done"))

    worker = Plain(url, poll_interval_ms=50)
    async with started(worker):
        await worker.create(job_id="a")
        await until(worker.app, ("a", "done", 1, None, 50))


async def test_a_plain_function_is_not_stopped_by_a_cancel_but_told_of_it(tmp_path):
    """As every sync function: its thread cannot be stopped, so its end counts."""
    told = asyncio.Queue[bool]()

    class Plain(ProcessingWorker):
        def process_job(self, job: Job) -> None:
            self.wait_for(told.put(False))
            while not current().cancel_requested:
                time.sleep(0.01)
            self.wait_for(told.put(True))

    worker = Plain(f"sqlite:///{tmp_path}/holdfast.db", poll_interval_ms=50)
    async with started(worker):
        job = await worker.create(job_id="a")
        assert await told.get() is False
        await worker.app.cancel(job.id)
        assert await told.get() is True
        await until(worker.app, ("a", "done", 1, None, 0))


async def test_the_status_of_a_worker_has_the_keys_of_its_guide(tmp_path):
    go = asyncio.Event()

    async def act(worker: Worker, job: Job) -> None:
        await go.wait()

    worker = Worker(f"sqlite:///{tmp_path}/holdfast.db", act)
    idle = {
        "workerId": "my-worker-1", "isRunning": False, "activeJobs": 0, "maxConcurrentJobs": 1,
        "leaseDurationSeconds": 300, "activeJobIds": [],
    }  # fmt: skip
    assert worker.get_status() == idle
    async with started(worker):
        job = await worker.create(job_id="a")
        await worker.seen.get()
        busy = {"isRunning": True, "activeJobs": 1, "activeJobIds": [str(job.id)]}
        assert worker.get_status() == idle | busy
        go.set()
    assert worker.get_status() == idle


async def test_a_start_takes_back_what_a_dead_worker_held(tmp_path):
    url = f"sqlite:///{tmp_path}/holdfast.db"
    stopped = asyncio.Event()

    async def act(worker: Worker, job: Job) -> None:
        stopped.set()

    dead = Holdfast(url)
    worker = Worker(url, act, poll_interval_ms=60_000)
    await worker.create(job_id="a")
    store = (await dead.home.client()).store
    lanes = list((await store.lanes()).lanes)
    answer = await store.claim(worker=1, lanes=lanes, want=1, lease=timedelta(milliseconds=1))
    assert len(answer.tasks) == 1
    await eventually(lambda: store.leases(lapsed=True))
    async with started(worker):
        assert [lease for lease in await store.leases() if lease.worker == 1] == []
        async with asyncio.timeout(60):
            await stopped.wait()
    await dead.close()


async def test_a_worker_that_processes_nothing_is_refused(tmp_path):
    worker = ProcessingWorker(f"sqlite:///{tmp_path}/holdfast.db")
    with pytest.raises(InvalidInput, match="override process_job"):
        await worker.start()
    with pytest.raises(InvalidInput, match="from 1 to 80"):
        ProcessingWorker(lease_extension_threshold_percent=95)


def test_what_is_not_given_is_taken_from_the_environment(monkeypatch):
    def served(**options: Any) -> tuple[Any, ...]:
        worker = ProcessingWorker("sqlite://:memory:", **options)
        told, status = worker._served, worker.get_status()
        return (
            worker.worker_id, status["leaseDurationSeconds"], status["maxConcurrentJobs"],
            told.max_concurrency, told.lease_duration, told.heartbeat_interval,
            told.poll_interval, told.poll_interval_max,
        )  # fmt: skip

    def span(seconds: float) -> timedelta:
        return timedelta(seconds=seconds)

    assert served(worker_id="w") == ("w", 300, 1, 1, span(300), span(150), 5, 5)
    environment = {
        "WORKER_ID": "of-environment", "WORKER_LEASE_DURATION_SECONDS": "60",
        "MAX_CONCURRENT_JOBS": "4", "WORKER_POLL_MIN_INTERVAL_SECONDS": "0.5",
        "WORKER_POLL_MAX_INTERVAL_SECONDS": "2",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert served() == ("of-environment", 60, 4, 4, span(60), span(30), 0.5, 2)
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_INTERVAL", "10")
    assert served()[5] == span(10)
    given = served(
        worker_id="w", lease_duration_seconds=100, max_concurrent_jobs=2, poll_interval_ms=50,
        lease_extension_threshold_percent=20,
    )  # fmt: skip
    assert given == ("w", 100, 2, 2, span(100), span(20), 0.05, 0.05)
