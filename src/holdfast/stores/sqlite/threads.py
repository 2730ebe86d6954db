"""The thread that writes and those that read. Answers go back to the loops that asked."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.clock import SystemClock
from holdfast.errors import StoreError
from holdfast.stores.sqlite.database import Database, Outcome

__all__ = ["Hold", "Job", "Reader", "Writer"]

_MOST_TOGETHER = 500
_TIMER = SystemClock()  # waiting is real, whatever clock judges the leases


class Hold:
    """A caller's transaction: while it is open, the writer does only what it asks for."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.ended: str | None = None

    def check(self) -> None:
        if self.ended:
            raise StoreError(f"this transaction {self.ended}; begin a new one")


class Job:
    """One call, and where its answer is awaited."""

    __slots__ = ("error", "flushes", "future", "hold", "loop", "reads", "value", "work")

    def __init__(
        self,
        work: Callable[[Any], Any] | None,
        *,
        reads: bool = False,
        hold: Hold | None = None,
        flushes: bool = True,
    ) -> None:
        """Not `flushes`: its commit need not wait for the disk."""
        self.work, self.reads, self.hold, self.flushes = work, reads, hold, flushes
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def abandoned(self) -> bool:
        """Whoever asked has gone."""
        return self.future.cancelled()

    def ended(self, outcome: Outcome) -> "Job":
        self.value, self.error = outcome
        return self


class Thread:
    """Opens its database with the first job, and again with the next where that failed."""

    def __init__(self, name: str, opening: Callable[[], Database]) -> None:
        self._name, self._opening = name, opening
        self._queue: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._pending: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._database: Database | None = None
        self._stopping = False
        self._lock = threading.Lock()

    async def call(self, work: Callable[[Any], Any], **options: Any) -> Any:
        job = Job(work, **options)
        with self._lock:
            if self._stopping:
                raise StoreError("the store is closed; open a new one")
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(job)
        return await job.future

    async def close(self) -> None:
        """When all that was asked for is done."""
        stop = Job(None)
        with self._lock:
            running, self._stopping = self._thread is not None and not self._stopping, True
            if running:
                self._queue.put(stop)
        if running:
            await asyncio.shield(stop.future)

    def _main(self) -> None:
        while True:
            self._gather()
            if self._pending[0].work is None:
                stop = self._pending.popleft()
                if self._database:
                    self._database.close()
                _deliver([stop])
                return
            try:
                self._database = self._database or self._opening()
            except Exception as error:
                _deliver([self._pending.popleft().ended((None, error))])
            else:
                self._serve(self._database)
                if self._database.closed:  # not even a rollback went through: begin afresh
                    self._database = None

    def _gather(self) -> None:
        """Waits for a job, and takes along what else is there."""
        if not self._pending:
            self._pending.append(self._queue.get())
        while True:
            try:
                self._pending.append(self._queue.get_nowait())
            except queue.Empty:
                return

    def _serve(self, database: Database) -> None:
        raise NotImplementedError


class Reader(Thread):
    """One question at a time."""

    def _serve(self, database: Database) -> None:
        _read(database, self._pending.popleft())


class Writer(Thread):
    """Whatever waits goes into one commit."""

    def _serve(self, database: Database) -> None:
        first = self._pending[0]
        if first.hold:
            self._pending.popleft()
            if not first.abandoned:  # before it began
                self._hold(database, first, first.hold)
        elif first.reads:
            _read(database, self._pending.popleft())
        else:
            self._commit(database)

    def _commit(self, database: Database) -> None:
        jobs: list[Job] = []
        flushes = self._pending[0].flushes

        def together() -> list[Any]:
            self._gather()
            while self._pending and len(jobs) < _MOST_TOGETHER:
                job = self._pending[0]
                if job.work is None or job.hold or job.reads or job.flushes is not flushes:
                    break
                self._pending.popleft()
                if not job.abandoned:
                    jobs.append(job)
            return [job.work for job in jobs]

        outcomes = database.write(together, flush=flushes)
        _deliver(job.ended(outcome) for job, outcome in zip(jobs, outcomes, strict=True))

    def _hold(self, database: Database, first: Job, hold: Hold) -> None:
        """Serves one caller's transaction until it ends, or its time is over."""
        self._answer(database, first, hold)
        over = _TIMER.boot() + round(hold.timeout * 1_000_000)
        while hold.ended is None:
            job = self._next_of(hold, over)
            if job is None:
                database.rollback()
                hold.ended = (
                    f"was open for more than {hold.timeout:g} s and was rolled back (a call "
                    "without conn= inside its block waits for its end)"
                )
                return
            self._answer(database, job, hold)

    def _next_of(self, hold: Hold, over: int) -> Job | None:
        """What the caller asks for next; None: its time is over. All others, who must not see
        what is not committed, wait. Its jobs may have been gathered before it began."""
        for place, job in enumerate(self._pending):
            if job.hold is hold:
                del self._pending[place]
                return job
        while True:
            try:
                job = self._queue.get(timeout=max(over - _TIMER.boot(), 0) / 1_000_000)
            except queue.Empty:
                return None
            if job.hold is hold:
                return job
            self._pending.append(job)

    def _answer(self, database: Database, job: Job, hold: Hold) -> None:
        try:
            hold.check()
            assert job.work is not None
            outcome: Outcome = (job.work(database), None)
        except Exception as error:
            outcome = (None, error)
        _deliver([job.ended(outcome)])


def _read(database: Database, job: Job) -> None:
    if not job.abandoned:
        assert job.work is not None
        _deliver([job.ended(database.read(job.work))])


def _deliver(jobs: Iterable[Job]) -> None:
    """One call into each loop for all of its answers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, answered in by_loop.items():
        try:
            loop.call_soon_threadsafe(_set, answered)
        except RuntimeError:
            continue  # that loop is closed: nobody waits any more


def _set(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
