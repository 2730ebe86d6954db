"""A worker as a class: override `process_job`. The same worker as `serve()`, in other words."""

import asyncio
import inspect
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from holdfast.app import Holdfast
from holdfast.app.serving import Served, serve
from holdfast.config import first
from holdfast.context import current
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.function import Function
from holdfast.registry import Registry
from holdfast.tasks.task import Task, TaskStatus
from holdfast.work.status import WorkerState

__all__ = ["Job", "ProcessingWorker"]

T = TypeVar("T")
_QUEUE = "processing_jobs"
_LEASE, _POLL, _EXTENSION = 300, 5.0, 50  # seconds, seconds, percent of the lease


class Job(Mapping[str, Any]):
    """What `create` was given, as attributes and as items; besides that `id`, `job_id`, `attempts`
    and `status`, in the words of the view `processing_jobs`."""

    id: UUID
    job_id: str
    attempts: int
    status: str

    def __init__(
        self, fields: Mapping[str, Any], *, id: UUID, job_id: str | None, attempts: int, status: str
    ) -> None:
        own = {"id": id, "job_id": job_id or str(id), "attempts": attempts, "status": status}
        self._row = {**fields, **own}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_row"][name]
        except KeyError:
            raise AttributeError(f"this job has no {name!r}") from None

    def __getitem__(self, name: str) -> Any:
        return self._row[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __repr__(self) -> str:
        return f"<job {self.job_id} {self.status}>"


class ProcessingWorker:
    """Takes jobs under a lease and hands each to `process_job`.

    Returning means done, raising means another try; `app.release_lease` decides otherwise. Workers
    on one store share the jobs of their `queue`. What is not given here is taken from the
    environment, and is else: a lease of 300 s, extended at 50 %, a look every 5 s, 1 job at once.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        app: Holdfast | None = None,
        worker_id: str | None = None,
        lease_duration_seconds: float | None = None,
        poll_interval_ms: float | None = None,
        max_concurrent_jobs: int | None = None,
        lease_extension_threshold_percent: float | None = None,
        queue: str = _QUEUE,
    ) -> None:
        if store is not None and app is not None:
            raise InvalidInput("give the store as a URL, or an app, not both")
        percent = lease_extension_threshold_percent
        if percent is not None and not 1 <= percent <= 80:
            raise InvalidInput(
                "lease_extension_threshold_percent must be from 1 to 80: later, one renewal that "
                f"fails would cost the lease; got {percent}"
            )
        _check_numbers(
            lease_duration_seconds=lease_duration_seconds,
            poll_interval_ms=poll_interval_ms,
            max_concurrent_jobs=max_concurrent_jobs,
        )
        self.app = app or Holdfast(store)
        self._closes = app is None
        self.worker_id = (
            worker_id or self.app.config.worker_id or f"worker-{socket.gethostname()}-{os.getpid()}"
        )
        config = self.app.config
        told = None if config.lease is None else config.lease.total_seconds()
        self.lease_duration_seconds = first(first(lease_duration_seconds, told), _LEASE)
        self.max_concurrent_jobs = first(first(max_concurrent_jobs, config.concurrency), 1)
        lease = timedelta(seconds=self.lease_duration_seconds)
        renewal = config.heartbeat_interval if percent is None else None
        least, most = _polling(self.app, poll_interval_ms)
        self._functions = Registry()
        self._function: Function[..., Any, Any] = self._functions.durable(
            name=f"holdfast.processing:{queue}", queue=queue
        )(self._attempt())
        self._served = Served(
            worker_id=self.worker_id,
            queues=[queue],
            max_concurrency=self.max_concurrent_jobs,
            poll_interval=least,
            poll_interval_max=most,
            lease_duration=lease,
            heartbeat_interval=first(renewal, lease * first(percent, _EXTENSION) / 100),
            functions=self._functions,
        )
        self._lifecycle = self.app.create_worker_lifecycle(self.worker_id)
        self._serving: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def process_job(self, job: Job) -> Any:
        """Do the work: `async def`, or a plain function, which runs in a thread."""
        raise NotImplementedError

    async def start(self) -> None:
        """Take back what dead workers held, then work; returns when the worker is ready."""
        if type(self).process_job is ProcessingWorker.process_job:
            raise InvalidInput("make a subclass of ProcessingWorker and override process_job(job)")
        if self._serving and not self._serving.done():
            raise HoldfastError(f"worker {self.worker_id} runs already")
        if self._lifecycle.state is WorkerState.STOPPED:
            self._lifecycle = self.app.create_worker_lifecycle(self.worker_id)
        await self.app.reset_expired_leases()
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.create_task(serve(self.app, self._served, self._lifecycle))
        with suppress(HoldfastError):
            await self._lifecycle.wait_until_ready()
        if self._lifecycle.state is WorkerState.STOPPED:
            await self._serving  # which raises what was wrong

    async def stop(self) -> None:
        """Claim nothing more, finish or hand back what is held."""
        self._lifecycle.request_drain()
        if self._serving:
            await self._serving
        if self._closes:
            await self.app.close()

    async def run(self) -> None:
        """`start`, and work until cancelled; then `stop`."""
        await self.start()
        assert self._serving
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._serving)
        finally:
            await self.stop()

    async def create(self, job_id: str | None = None, **fields: Any) -> Job:
        """Put a job. The same `job_id` again is the same job: it is not put twice."""
        if fields.pop("status", "pending") != "pending" or fields.pop("progress", 0) != 0:
            raise InvalidInput("a new job is pending, and its progress is 0")
        function = self._function.options(idempotency_key=job_id)
        handle = await self.app.dispatch(function, job_id, fields)
        state = await handle.state()
        return Job(
            fields, id=state.id, job_id=job_id, attempts=state.try_count, status=status_of(state)
        )

    def get_status(self) -> dict[str, Any]:
        facts = self._lifecycle.overview()
        jobs = facts.get("active_job_ids", [])
        return {
            "workerId": self.worker_id,
            "isRunning": self._lifecycle.state in (WorkerState.READY, WorkerState.DRAINING),
            "activeJobs": len(jobs),
            "maxConcurrentJobs": self.max_concurrent_jobs,
            "leaseDurationSeconds": self.lease_duration_seconds,
            "activeJobIds": jobs,
        }

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """For a `process_job` that does not await:
        `self.wait_for(self.app.update_progress(job.id, 50))`."""
        assert self._loop
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _attempt(self) -> Callable[..., Any]:
        """What is registered: a coroutine or a plain function, as `process_job` is one."""

        async def attempt(job_id: str | None, fields: dict[str, Any]) -> None:
            await self.process_job(_job(job_id, fields))

        def attempt_in_thread(job_id: str | None, fields: dict[str, Any]) -> Any:
            value = self.process_job(_job(job_id, fields))
            return _ended(value) if inspect.isawaitable(value) else None

        return attempt if inspect.iscoroutinefunction(self.process_job) else attempt_in_thread


def _check_numbers(**given: Any) -> None:
    for name, number in given.items():
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int | float) or not number > 0
        ):
            raise InvalidInput(f"{name} must be a number above 0, got {number!r:.80}")


def _polling(app: Holdfast, given_ms: float | None) -> tuple[float, float]:
    """At one pace, unless the app or the environment says otherwise."""
    if given_ms is not None:
        return given_ms / 1000, given_ms / 1000
    least, most, _ = app.polling
    least = first(least, _POLL if most is None else min(_POLL, most))
    return least, first(most, max(least, _POLL))


def _job(job_id: str | None, fields: dict[str, Any]) -> Job:
    context = current()
    return Job(
        fields, id=context.task_id, job_id=job_id, attempts=context.attempt, status="processing"
    )


async def _ended(value: Awaitable[Any]) -> None:
    """A plain function that made a coroutine: what it results in does not matter either."""
    await value


def status_of(task: Task) -> str:
    """In the words of `processing_jobs`."""
    match task.status:
        case TaskStatus.RUNNING:
            return "processing"
        case TaskStatus.PENDING | TaskStatus.WAITING:
            return "retry" if task.try_count else "pending"
        case TaskStatus.CANCELLED:
            return "failed"
        case status:
            return str(status)
