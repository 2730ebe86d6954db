"""What a worker holds: what runs in its slots, and what it took ahead to start soon."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from holdfast.context import running
from holdfast.executor import Executor
from holdfast.executors.failures import failure_of, outcome_of
from holdfast.observer import Ended
from holdfast.registry import Function
from holdfast.store import Store
from holdfast.tasks.lifecycle import (
    Cancelled,
    Errored,
    Expired,
    HandedBack,
    Settlement,
    Verdict,
)
from holdfast.tasks.task import Claimed, Failure, Lease
from holdfast.work.attempt import Attempt, Why
from holdfast.work.holding import Holding
from holdfast.work.settling import Settling

__all__ = ["Choosing", "Functions", "Slots"]

logger = logging.getLogger("holdfast.worker")

_AHEAD = 0.1  # seconds within which what is taken ahead should start
_MOST_AHEAD = 1000
_STALE_AHEAD = 0.5  # seconds after which it is handed back
_STOPPING = 5.0  # seconds that a function has to end once it was cancelled

Functions = Callable[[], Mapping[tuple[str, str], Function[..., Any, Any]]]
Choosing = Callable[[Function[..., Any, Any], Claimed], Executor]


class Slots:
    """So many attempts at once. A task that was lost in company before runs as the only one.

    `hungry` is called when there is room for more.
    """

    def __init__(
        self,
        count: int,
        *,
        store: Store,
        functions: Functions,
        executors: Choosing,
        settling: Settling,
        holding: Holding,
        worker_id: str,
        default_tries: int,
        hungry: Callable[[], None],
    ) -> None:
        self.count = count
        self._store, self._functions, self._executors = store, functions, executors
        self._settling, self._holding, self._hungry = settling, holding, hungry
        self._worker_id, self._default_tries = worker_id, default_tries
        self._running: dict[Lease, Attempt] = {}  # an old grant may run on beside the new one
        self._ahead: deque[tuple[float, Claimed]] = deque()
        self._alone: Claimed | None = None
        self._one_at_a_time = False
        self._average = 0.0  # seconds that an attempt takes, lately
        self._closed = False
        self._idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __contains__(self, task: UUID) -> bool:
        return any(lease.task == task for lease in self._running)

    @property
    def running(self) -> list[UUID]:
        return [lease.task for lease in list(self._running)]

    @property
    def active(self) -> int:
        return len(self._running)

    @property
    def patience(self) -> float | None:
        """Seconds until somebody should look after what was taken ahead; None: never."""
        return _STALE_AHEAD / 2 if self._ahead else None

    # ── filling ──────────────────────────────────────────────────────────────────────────────

    def appetite(self) -> tuple[int, int]:
        """How many to claim: to start now, and ahead of that, by how fast they went lately."""
        if self._closed or self._alone or self._is_sole():
            return 0, 0
        have = len(self._running) + len(self._ahead)
        ahead = 0
        if self._average > 0:
            ahead = min(_MOST_AHEAD, int(self.count / self._average * _AHEAD))
        if have >= self.count and len(self._ahead) > ahead // 2:
            return 0, 0
        free = max(0, self.count - have)
        if self._one_at_a_time:
            return min(free, 1), 0
        return free, max(0, self.count + ahead - have - free)

    def take(self, tasks: Sequence[Claimed]) -> None:
        since = self._loop.time()
        self._one_at_a_time = any(task.alone for task in tasks)
        for task in tasks:
            if self._closed or (task.alone and self._alone):
                self._put_down(task)
            elif task.alone:
                self._alone = task
            else:
                self._ahead.append((since, task))
        self.fill()

    def hand_back_stale(self) -> None:
        """What was taken ahead and did not start: others may be free."""
        before = self._loop.time() - _STALE_AHEAD
        if self._ahead and self._ahead[0][0] < before:
            # They take longer than was thought: else the same ones came and went for ever.
            self._average = max(2 * self._average, _STALE_AHEAD)
        while self._ahead and self._ahead[0][0] < before:
            self._put_down(self._ahead.popleft()[1])

    def close(self) -> None:
        """Nothing starts any more; what has not started is handed back."""
        self._closed = True
        while self._ahead:
            self._put_down(self._ahead.popleft()[1])
        if self._alone:
            self._put_down(self._alone)
            self._alone = None

    async def drain(self, patience: float) -> None:
        """Wait for what runs, then hand that back too."""
        self.close()
        await self._until_idle(patience)
        for attempt in list(self._running.values()):
            self._stop(attempt, Why.DRAIN)
        await self._until_idle(_STOPPING)
        for attempt in list(self._running.values()):  # a thread, or one that will not be stopped
            self._end(attempt, self._after_stop(attempt))

    async def _until_idle(self, patience: float) -> None:
        if self._running:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._idle.wait()

    def fill(self) -> None:
        """Start what may start now: somebody ended, or an end was written."""
        waited = self._alone is not None
        while claimed := self._next():
            self._start(claimed)
        if waited and not self._alone and not self._running:  # it was not even started
            self._hungry()

    def _next(self) -> Claimed | None:
        """Who starts now. One that must be alone waits until nothing else is held: whatever is
        lost together with it would pay for it."""
        if self._closed or len(self._running) >= self.count or self._is_sole():
            return None
        if self._ahead:
            return self._ahead.popleft()[1]
        alone = self._alone
        if alone is None or self._running or len(self._holding) > 1:
            return None
        self._alone = None
        return alone

    def _is_sole(self) -> bool:
        """Whether what runs must be the only one."""
        return len(self._running) == 1 and next(iter(self._running.values())).claimed.alone

    # ── running ──────────────────────────────────────────────────────────────────────────────

    def _start(self, claimed: Claimed) -> None:
        function = self._functions().get((claimed.lane.type, claimed.lane.version))
        if function is None:  # it was served a moment ago
            self._put_down(claimed)
            return
        attempt = Attempt(
            claimed,
            function,
            self._executors(function, claimed),
            self._store,
            worker_id=self._worker_id,
            default_tries=self._default_tries,
            started=self._loop.time(),
        )
        if claimed.cancel_requested:
            self._settling.add(Ended(claimed, attempt.settle(Cancelled()), 0.0))
        elif claimed.expired:
            self._settling.add(Ended(claimed, attempt.settle(Expired()), 0.0))
        else:
            self._running[claimed.lease] = attempt
            attempt.task = self._loop.create_task(self._run(attempt))
            if timeout := function.traits.timeout:
                attempt.timer = self._loop.call_later(
                    timeout.total_seconds(), self._stop, attempt, Why.TIMEOUT
                )

    async def _run(self, attempt: Attempt) -> None:
        running.set(attempt.context)
        settlement: Settlement | None
        try:
            settlement = await self._call(attempt)
        except BaseException as error:  # whatever a function raises ends its attempt, nothing else
            settlement = self._after_error(attempt, error)
        self._end(attempt, settlement)

    async def _call(self, attempt: Attempt) -> Settlement | None:
        try:
            result = await attempt.executor.run(attempt.function, attempt.context)
            if attempt.why in (Why.LOST, Why.TIMEOUT):
                raise asyncio.CancelledError  # it went on in spite of it: too late
            settlement = Settlement(verdict=Verdict.DONE, result=result)
            if not attempt.in_transaction:
                return settlement
            await self._commit(attempt, settlement)
            return None
        except BaseException as error:
            await attempt.roll_back(error)
            raise

    def _after_error(self, attempt: Attempt, error: BaseException) -> Settlement | None:
        """What follows from what was raised: by the function, or by stopping it."""
        stopped = attempt.why in (Why.LOST, Why.TIMEOUT, Why.DRAIN)
        if stopped or isinstance(error, asyncio.CancelledError):
            return self._after_stop(attempt)
        try:
            return attempt.settle(outcome_of(error, attempt.function))
        except Exception as worse:  # such as a Snooze that names no duration
            return attempt.settle(Errored(failure_of(worse), retryable=False))

    async def _commit(self, attempt: Attempt, settlement: Settlement) -> None:
        """Written by the function's own transaction, or not at all."""
        if await attempt.commit(settlement):
            seconds = self._loop.time() - attempt.started
            self._settling.note(Ended(attempt.claimed, settlement, seconds))

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
        self._running.pop(attempt.claimed.lease, None)
        if not attempt.ended:
            attempt.ended = True
            self._settle(attempt, settlement)
        self.fill()
        if len(self._ahead) + len(self._running) <= self.count:
            self._hungry()
        if not self._running:
            self._idle.set()

    def _settle(self, attempt: Attempt, settlement: Settlement | None) -> None:
        if settlement is None:
            self._holding.drop([attempt.claimed.lease])
            return
        seconds = self._loop.time() - attempt.started
        self._average = 0.9 * self._average + 0.1 * seconds if self._average else seconds
        self._settling.add(Ended(attempt.claimed, settlement, seconds))

    def _put_down(self, claimed: Claimed) -> None:
        """Give it back with its place and its attempt: it was not started."""
        settlement = Settlement(verdict=Verdict.HANDED_BACK, refund=True)
        self._settling.add(Ended(claimed, settlement, 0.0))

    # ── told by the renewal ──────────────────────────────────────────────────────────────────

    def lost(self, leases: Sequence[Lease]) -> None:
        """Stop their work, and write nothing of it."""
        gone = frozenset(leases)
        self._ahead = deque(one for one in self._ahead if one[1].lease not in gone)
        if self._alone and self._alone.lease in gone:
            self._alone = None
        for lease in leases:
            attempt = self._running.get(lease)
            if attempt and not attempt.ended:
                logger.warning("task %s: its lease is lost, it is stopped", lease.task)
                attempt.context.cancel_requested = True
                self._stop(attempt, Why.LOST)
        self._holding.drop(leases)
        self.fill()
        self._hungry()

    def cancel(self, tasks: frozenset[UUID]) -> None:
        for attempt in list(self._running.values()):
            if attempt.claimed.lease.task in tasks and not attempt.context.cancel_requested:
                attempt.context.cancel_requested = True
                # A sync function sees it by `check_cancelled`: its thread cannot be stopped.
                if attempt.function.is_async or attempt.function.traits.isolation:
                    self._stop(attempt, Why.CANCEL)
