"""A worker: claims what it has room for, runs it, settles it, rests, and drains in the end."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast.clock import Clock
from holdfast.context import running
from holdfast.errors import InvalidInput, StoreError
from holdfast.executor import Executor
from holdfast.executors.failures import outcome_of
from holdfast.notifier import Hint, Notifier
from holdfast.observer import Ended, Observer
from holdfast.registry import Function
from holdfast.store import Store, WorkerRecord
from holdfast.tasks.lane import Serving
from holdfast.tasks.lifecycle import (
    Cancelled,
    Errored,
    Expired,
    HandedBack,
    Outcome,
    Settlement,
    Verdict,
)
from holdfast.tasks.task import Claimed, Failure, Lease
from holdfast.work.attempt import Attempt, Why
from holdfast.work.claiming import Claiming
from holdfast.work.holding import Holding
from holdfast.work.pace import Pace, Polling
from holdfast.work.renewal import Renewal
from holdfast.work.settling import Settling
from holdfast.work.status import WorkerLifecycle, WorkerState

__all__ = ["Settings", "Worker"]

logger = logging.getLogger("holdfast.worker")

_AHEAD = 0.1  # seconds within which what is taken ahead should start
_MOST_AHEAD = 1000
_STALE_AHEAD = 0.5  # seconds after which it is handed back
_STOPPING = 5.0  # seconds that a function has to end once it was cancelled

Functions = Callable[[], Mapping[tuple[str, str], Function[..., Any, Any]]]
Choosing = Callable[[Function[..., Any, Any], Claimed], Executor]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    slots: int = 10
    polling: Polling = Polling()
    lease: timedelta = timedelta(minutes=5)
    renew_every: timedelta | None = None
    beat: timedelta = timedelta(seconds=30)
    drain_timeout: timedelta = timedelta(seconds=30)
    default_tries: int = 3

    def __post_init__(self) -> None:
        faults = []
        if not 1 <= self.slots <= 100_000:
            faults.append(f"max_concurrency must be from 1 to 100000, got {self.slots}")
        if not timedelta(milliseconds=100) <= self.lease <= timedelta(days=365):
            faults.append(f"lease_duration must be from 0.1 s to a year, got {self.lease}")
        if self.interval > self.lease * 0.8 or self.interval <= timedelta(0):
            faults.append(
                f"heartbeat_interval of {self.interval} does not fit a lease of {self.lease}; "
                "renew it at a third of its length"
            )
        if faults:
            raise InvalidInput("; ".join(faults))

    @property
    def interval(self) -> timedelta:
        return self.renew_every or self.lease / 3


class Worker:
    """Serves until it is asked to drain."""

    def __init__(
        self,
        *,
        store: Store,
        opening: Callable[[], AbstractAsyncContextManager[Store]],
        notifier: Notifier,
        observer: Observer,
        clock: Clock,
        record: WorkerRecord,
        settings: Settings,
        functions: Functions,
        executors: Choosing,
        serving: Callable[[], Serving],
        lifecycle: WorkerLifecycle,
    ) -> None:
        self._store, self._notifier, self._observer = store, notifier, observer
        self._settings, self._lifecycle, self._record = settings, lifecycle, record
        self._functions, self._executors = functions, executors
        self._serving = serving
        self._pace = Pace(settings.polling)
        self._holding = Holding(clock, settings.lease.total_seconds())
        self._claiming = Claiming(
            store,
            self._holding,
            worker=record.id,
            serving=serving,
            lease=settings.lease,
            durable=self._any_fenced,
        )
        self._settling = Settling(
            store,
            self._holding,
            observer,
            default_tries=settings.default_tries,
            written=self._written,
        )
        self._renewal = Renewal(
            opening=opening,
            holding=self._holding,
            lease=settings.lease,
            interval=settings.interval,
            beat=settings.beat,
            record=self.record,
            lost=lambda leases: self._from_outside(self._lost, leases),
            cancelled=lambda tasks: self._from_outside(self._cancelled, tasks),
            observer=observer,
        )
        self._running: dict[UUID, Attempt] = {}
        self._ahead: deque[tuple[float, Claimed]] = deque()
        self._alone: deque[Claimed] = deque()
        self._average = 0.0  # seconds that an attempt takes, lately
        self._acquired = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # ── what others ask ──────────────────────────────────────────────────────────────────────

    def record(self) -> WorkerRecord:
        """This worker as the registry shows it now."""
        return msgspec.structs.replace(
            self._record,
            active=len(self._running),
            status=str(self._lifecycle.state),
            tasks_acquired=self._acquired,
            poll_interval=self._pace.interval,
        )

    def look_now(self) -> None:
        """There may be work: do not rest."""
        self._pace.snap_back()
        self._wake.set()

    def facts(self) -> dict[str, Any]:
        """This worker as health checks and pages show it."""
        slots, active = self._settings.slots, len(self._running)
        return {
            "worker_id": self._record.name,
            "active_jobs": active,
            "max_jobs": slots,
            "utilization": active / slots,
            "active_job_ids": [str(task) for task in self._running],
            "tasks_acquired": self._acquired,
            "poll_interval": self._pace.interval,
        }

    # ── the life of a worker ─────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Until it is drained. Cancelled, it hands back what it holds and ends."""
        settling = asyncio.create_task(self._settling.run())
        await self._renewal.start()
        await self._notifier.listen(self._heard)
        self._lifecycle.move(WorkerState.READY)
        logger.info("worker %s is ready, with %d slots", self._record.name, self._settings.slots)
        claiming = asyncio.create_task(self._claim_for_ever())
        drain = asyncio.create_task(self._lifecycle.wait_until_drain())
        patience = self._settings.drain_timeout.total_seconds()
        try:
            await asyncio.wait({claiming, drain, settling}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            patience = 0.0
        self._lifecycle.move(WorkerState.DRAINING)
        drain.cancel()
        claiming.cancel()
        failed = await asyncio.gather(claiming, return_exceptions=True)
        await self._drain(patience)
        settling.cancel()
        await self._renewal.stop()
        self._lifecycle.move(WorkerState.STOPPED)
        logger.info("worker %s has stopped", self._record.name)
        for error in failed:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def _drain(self, patience: float) -> None:
        for _, task in self._ahead:
            self._put_down(task, HandedBack())
        for task in self._alone:
            self._put_down(task, HandedBack())
        self._ahead.clear()
        self._alone.clear()
        await self._until_idle(patience)
        for attempt in list(self._running.values()):
            self._stop(attempt, Why.DRAIN)
        await self._until_idle(_STOPPING)
        for attempt in list(self._running.values()):  # what cannot be stopped: a thread, a rebel
            self._end(attempt, attempt.settle(HandedBack()))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(patience, _STOPPING)):
                await self._settling.flush()

    async def _until_idle(self, patience: float) -> None:
        if self._running:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._idle.wait()

    # ── claiming ─────────────────────────────────────────────────────────────────────────────

    async def _claim_for_ever(self) -> None:
        unreachable = False
        while True:
            self._wake.clear()
            now, ahead = self._appetite()
            if now + ahead <= 0:
                await self._rest(_STALE_AHEAD / 2 if self._ahead else None)
                self._hand_back_stale()
                continue
            try:
                found = await self._claiming.claim(now, ahead)
            except StoreError as error:
                if not unreachable:
                    logger.warning("could not claim: %s; trying again", error)
                unreachable = True
                await self._rest(self._pace.rest(None, random.random()))
                continue
            unreachable = False
            if found.tasks:
                self._pace.snap_back()
                self._take(found.tasks)
            elif not found.again:
                seconds = self._pace.rest(found.next_due, random.random())
                self._observer.rested(seconds)
                await self._rest(seconds)
            self._hand_back_stale()

    def _appetite(self) -> tuple[int, int]:
        """How many to claim: to start now, and ahead of that."""
        slots = self._settings.slots
        if self._alone:
            return 0, 0
        have = len(self._running) + len(self._ahead)
        ahead = 0
        if self._average > 0:
            ahead = min(_MOST_AHEAD, int(slots / self._average * _AHEAD))
        if slots <= have > slots + ahead // 2:
            return 0, 0
        free = max(0, slots - have)
        return free, max(0, slots + ahead - have - free)

    def _take(self, tasks: list[Claimed]) -> None:
        self._acquired += len(tasks)
        self._observer.claimed(tasks)
        since = self._loop.time()
        for task in tasks:
            if task.alone:
                self._alone.append(task)
            else:
                self._ahead.append((since, task))
        self._fill()

    async def _rest(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _hand_back_stale(self) -> None:
        """What was taken ahead and did not start: others may be free."""
        before = self._loop.time() - _STALE_AHEAD
        while self._ahead and self._ahead[0][0] < before:
            self._put_down(self._ahead.popleft()[1], HandedBack())

    def _heard(self, hint: Hint) -> None:
        match hint.kind:
            case "work":
                queues = self._serving().queues
                if hint.name == "*" or queues is None or hint.name in queues:
                    self.look_now()
            case "cancel":
                with suppress(ValueError):
                    if UUID(hint.name) in self._running:
                        self._renewal.look_now()

    def _any_fenced(self) -> bool:
        return any(function.traits.fenced for function in self._functions().values())

    # ── running ──────────────────────────────────────────────────────────────────────────────

    def _fill(self) -> None:
        """Start as many as there are slots for."""
        if self._alone and not self._running and not self._ahead:
            self._start(self._alone.popleft())
            return
        while self._ahead and len(self._running) < self._settings.slots:
            self._start(self._ahead.popleft()[1])

    def _start(self, claimed: Claimed) -> None:
        function = self._functions().get((claimed.lane.type, claimed.lane.version))
        if function is None:  # it was served a moment ago
            self._put_down(claimed, HandedBack())
            return
        attempt = Attempt(
            claimed,
            function,
            self._executors(function, claimed),
            self._store,
            worker_id=self._record.name,
            default_tries=self._settings.default_tries,
            started=self._loop.time(),
        )
        if claimed.cancel_requested:
            self._put_down(claimed, Cancelled(), attempt)
        elif claimed.expired:
            self._put_down(claimed, Expired(), attempt)
        else:
            self._running[claimed.lease.task] = attempt
            attempt.task = self._loop.create_task(self._run(attempt))
            if timeout := function.traits.timeout:
                attempt.timer = self._loop.call_later(
                    timeout.total_seconds(), self._stop, attempt, Why.TIMEOUT
                )

    async def _run(self, attempt: Attempt) -> None:
        running.set(attempt.context)
        settlement: Settlement | None
        try:
            result = await attempt.executor.run(attempt.function, attempt.context)
            settlement = Settlement(verdict=Verdict.DONE, result=result)
        except asyncio.CancelledError:
            settlement = self._after_stop(attempt)
        except BaseException as error:  # whatever a function raises ends its attempt, nothing else
            settlement = attempt.settle(outcome_of(error, attempt.function))
        self._end(attempt, settlement)

    def _after_stop(self, attempt: Attempt) -> Settlement | None:
        """What follows from an attempt that was stopped; None: write nothing."""
        match attempt.why:
            case Why.LOST:
                return None
            case Why.CANCEL:
                return attempt.settle(Cancelled())
            case Why.DRAIN:
                return attempt.settle(HandedBack())
            case Why.TIMEOUT:
                seconds = attempt.function.traits.timeout
                failure = Failure(type="TimeoutError", message=f"it ran longer than {seconds}")
                return attempt.settle(Errored(failure))
            case None:
                failure = Failure(type="CancelledError", message="the function cancelled itself")
                return attempt.settle(Errored(failure))

    def _stop(self, attempt: Attempt, why: Why) -> None:
        attempt.stop(why)
        # One that goes on in spite of it keeps its slot, but its task is not held up by it.
        self._loop.call_later(_STOPPING, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        if not attempt.ended:
            logger.error(
                "task %s goes on although %s; it keeps its slot until it ends",
                attempt.claimed.lease.task,
                attempt.why and attempt.why.value,
            )
            attempt.ended = True
            self._settle(attempt, self._after_stop(attempt))

    def _end(self, attempt: Attempt, settlement: Settlement | None) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        self._running.pop(attempt.claimed.lease.task, None)
        if not attempt.ended:
            attempt.ended = True
            self._settle(attempt, settlement)
        self._fill()
        if len(self._ahead) + len(self._running) <= self._settings.slots:
            self._wake.set()
        if not self._running:
            self._idle.set()

    def _settle(self, attempt: Attempt, settlement: Settlement | None) -> None:
        if settlement is None:
            self._holding.drop([attempt.claimed.lease])
            return
        seconds = self._loop.time() - attempt.started
        self._average = 0.9 * self._average + 0.1 * seconds if self._average else seconds
        self._settling.add(Ended(attempt.claimed, settlement, seconds))

    def _put_down(self, claimed: Claimed, outcome: Outcome, attempt: Attempt | None = None) -> None:
        """End it without having started it."""
        settlement = (
            attempt.settle(outcome)
            if attempt
            else Settlement(verdict=Verdict.HANDED_BACK, refund=True)
        )
        self._settling.add(Ended(claimed, settlement, 0.0))

    def _written(self, batch: Sequence[Ended]) -> None:
        """A settle makes room behind a limit, here and elsewhere."""
        if limited := self._claiming.limited:
            queues = {ended.task.lane.queue for ended in batch if ended.task.lane in limited}
            if queues:
                self._notifier.tell(Hint("work", queue) for queue in queues)
                self.look_now()

    # ── told by the renewal, in its thread ───────────────────────────────────────────────────

    def _from_outside(self, act: Callable[[Any], None], news: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, news)

    def _lost(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            attempt = self._running.get(lease.task)
            if attempt and attempt.claimed.lease.grant == lease.grant:
                logger.warning("task %s: its lease is lost, it is stopped", lease.task)
                attempt.context.cancel_requested = True
                self._stop(attempt, Why.LOST)
            gone = [(s, t) for s, t in self._ahead if t.lease != lease]
            if len(gone) != len(self._ahead):
                self._ahead = deque(gone)
        self._holding.drop(leases)

    def _cancelled(self, tasks: frozenset[UUID]) -> None:
        for task in tasks:
            attempt = self._running.get(task)
            if attempt and not attempt.context.cancel_requested:
                attempt.context.cancel_requested = True
                if attempt.function.is_async or attempt.function.traits.isolation:
                    self._stop(attempt, Why.CANCEL)
