"""What a worker holds: what runs in its slots, and what it took ahead to start soon."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from math import inf
from typing import Any
from uuid import UUID

from holdfast.answers import Journal, Written
from holdfast.context import running
from holdfast.executor import Executors
from holdfast.observer import Ended
from holdfast.redaction import Redaction
from holdfast.store import Store
from holdfast.tasks.lifecycle import Cancelled, Expired, Settlement, Verdict
from holdfast.tasks.task import Claimed, Draft, Lease
from holdfast.work.adoption import Adoption, Offer
from holdfast.work.ahead import Ahead, Functions
from holdfast.work.attempt import Attempt
from holdfast.work.awake import Awake
from holdfast.work.deadline import first_end, time_left
from holdfast.work.flowing import Flowing
from holdfast.work.holding import Holding
from holdfast.work.settling import Settling
from holdfast.work.solitude import Solitude
from holdfast.work.why import Why

__all__ = ["Slots"]

logger = logging.getLogger("holdfast.worker")

_AHEAD = 0.2  # seconds within which what is taken ahead should start
_MOST_AHEAD = 2000
_STALE_AHEAD = 0.5  # seconds after which it is handed back
_TURN = 1_000  # microseconds after which the slots let others have the event loop
_LOW = 0.75  # of those that may be taken ahead: when no more are left, others are claimed
# Where claims and settles never overlap, few and large ones are better.
_TURN_OF_ONE_WRITER, _LOW_OF_ONE_WRITER = 3_000, 0.5
_STOPPING = 5.0  # seconds that a function has to end once it was cancelled
_ANEW = 12  # times as long where it begins anew, for it does so with its rows


class Slots:
    """So many attempts at once. A task that was lost in company twice runs as the only one.

    `hungry` is called when there is room for more.
    """

    def __init__(
        self,
        count: int,
        *,
        store: Store,
        functions: Functions,
        executors: Executors,
        settling: Settling,
        holding: Holding,
        worker_id: str,
        default_tries: int,
        begin_flow: Callable[[Attempt, Journal | None], Flowing],
        hungry: Callable[[], None],
        adoption: Adoption | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self.count = count
        self.store, self.holding = store, holding
        self.worker_id, self.default_tries = worker_id, default_tries
        self.redaction = redaction or Redaction()
        self._begin_flow, self._adoption = begin_flow, adoption
        self._functions, self._executors = functions, executors
        self.in_thread = executors.in_thread
        self._settling, self._hungry = settling, hungry
        self.keep_logs = settling.keep_logs
        self._running: set[Attempt] = set()  # an old grant may run on beside the new one
        self._resting: set[Attempt] = set()  # functions that only wait, and need no slot
        self._defiant: set[Attempt] = set()  # given up, and still in their slots
        self.awake = Awake()
        self._returning: deque[asyncio.Future[None]] = deque()
        self._average = 0.0  # seconds from one attempt's end to the next one's, lately
        self._low = 0  # of those taken ahead: when so few are left, more are claimed
        self._low_share = _LOW_OF_ONE_WRITER if store.one_writer else _LOW
        self._closed = False
        self._waking = False  # a slot is about to look
        self._longest = _TURN_OF_ONE_WRITER if store.one_writer else _TURN
        self._turn = 0  # when the slots' turn of the event loop began
        self._turn_is_over = False
        self._moves = 0  # attempts that began, and that ended
        self._slots: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._solitude = Solitude(self._loop, self.freed)
        self._ahead = Ahead(
            self._solitude,
            functions=functions,
            executors=executors,
            default_tries=default_tries,
            put_down=self._put_down,
            holds=holding.holds,
        )

    def __contains__(self, task: UUID) -> bool:
        """Whether it runs here, or is about to."""
        return task in self.running or task in self._ahead

    @property
    def running(self) -> list[UUID]:
        return [attempt.claimed.lease.task for attempt in self._running | self._defiant]

    @property
    def active(self) -> int:
        return len(self._running) + len(self._defiant)

    @property
    def occupied(self) -> int:
        """Slots that are taken, also by what could not be stopped."""
        return self.active - len(self._resting) + self._executors.stranded

    @property
    def patience(self) -> float | None:
        """Seconds until somebody should look after what was taken ahead; None: never."""
        return _STALE_AHEAD / 2 if self._ahead else None

    # ── filling ──────────────────────────────────────────────────────────────────────────────

    def appetite(self) -> tuple[int, int]:
        """How many to claim: to start now, and ahead of that, by how fast they went lately."""
        if self._closed or self._solitude:
            return 0, 0
        have = self.occupied + len(self._ahead)
        ahead = 0
        if self._average > 0:
            ahead = min(_MOST_AHEAD, int(_AHEAD / self._average))
        self._low = int(ahead * self._low_share)  # while they run, the store looks for the others
        if have >= self.count and len(self._ahead) > self._low:
            return 0, 0
        free = max(0, self.count - have)
        if self._ahead.one_at_a_time:
            return min(free, 1), 0
        if self._ahead.is_wary:
            return free, 0
        return free, max(0, self.count + ahead - have - free)

    def take(self, tasks: Sequence[Claimed]) -> None:
        if self._running:
            held = {a.claimed.lease.task.int: a.claimed.lease for a in self._running}
            if old := [held[t.lease.task.int] for t in tasks if t.lease.task.int in held]:
                self.lost(old)  # only a task that was taken back is granted again
        if self._closed:
            for task in tasks:
                self._put_down(task)
        else:
            room = self.count - self.occupied - len(self._ahead)
            self._ahead.add(tasks, self._loop.time(), self._running, room=room)
        self.fill()

    def freed(self) -> None:
        """There is room again."""
        self.fill()
        self._hungry()

    def hand_back_stale(self) -> None:
        """What was taken ahead and did not start: others may be free."""
        before = self._loop.time() - _STALE_AHEAD
        if stale := self._ahead.stale(before, is_full=self.occupied >= self.count):
            # They take longer than was thought: else the same ones came and went for ever.
            self._average = max(2 * self._average, _STALE_AHEAD / self.count)
        for task in stale:
            self._put_down(task)

    def close(self) -> None:
        """Nothing starts any more; what has not started is handed back."""
        self._closed = True
        for task in self._ahead.clear():
            self._put_down(task)

    async def drain(self, patience: float) -> None:
        """Wait for what runs, then hand that back too."""
        self.close()
        for attempt in list(self._resting):
            if attempt.began:
                attempt.began.hurry()
        await self._until_idle(patience)
        for attempt in self._running.copy():
            attempt.stop(Why.DRAIN)
        await self._until_idle(_STOPPING)
        for attempt in self._running.copy():
            self._give_up(attempt)

    async def _until_idle(self, patience: float) -> None:
        if self._running:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._idle.wait()

    def fill(self) -> None:
        """See to it that whatever can start does. One slot is woken; before it starts an attempt
        it wakes the next, should its own have to wait: so a burst of tasks that never wait costs
        one asyncio task, not one each."""
        while self._returning and self.occupied < self.count:
            turn = self._returning.popleft()
            if not turn.done():
                turn.set_result(None)
                return  # it takes its slot before anything new starts
        if not self._waking and self._can_start():
            self._waking = True
            # In a context of our own: a function that ends may have left something in its own.
            slot = self._loop.create_task(self._work(), context=self._context.copy())
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)

    def _can_start(self) -> bool:
        if self._closed or not self._ahead.can_start(self._running, self.holding):
            return False
        return self.occupied < self.count

    def _next(self) -> tuple[Claimed, float] | None:
        """Who starts now, and when it was taken."""
        if self._closed or self.occupied >= self.count:
            return None
        return self._ahead.next(self._running, self.holding)

    # ── running ──────────────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        """One slot: attempt after attempt, while there are any."""
        self._waking = False
        me = asyncio.current_task()
        assert me is not None
        clean = copy_context()
        now = self.holding.now()  # read once: an attempt's end is the next one's start
        while taken := self._next():
            attempt = self._attempt(*taken, now)
            if attempt is None:
                self._hungry()
                continue
            attempt.task = me
            if not self._waking:
                self.fill()
            token, moves = running.set(attempt.context), self._moves
            settlement = await attempt.run()
            running.reset(token)
            waited = self._moves != moves
            now = self.holding.now()
            self._end(attempt, settlement, now)
            attempt.let_go()
            if attempt.why is not None or me.cancelling() or copy_context() != clean:
                break  # it was cancelled, or left something behind: a fresh one goes on
            if now - self._turn > self._longest:
                if not self._turn_is_over:
                    await self._let_others()
                    now = self.holding.now()
                elif not waited:  # else it goes on: slots that come free together fill together
                    break  # whoever had the rest of the turn goes on with the next
        self.fill()

    async def _let_others(self) -> None:
        """Have the event loop, for once. All slots share one turn: if each had its own, answers of
        the store would lie there until all of them had theirs."""
        self._turn_is_over = True
        self._loop.call_soon(self._begin_turn)
        await asyncio.sleep(0)

    def _begin_turn(self) -> None:
        self._turn_is_over, self._turn = False, self.holding.now()

    def _attempt(self, claimed: Claimed, since: float, now: int) -> Attempt | None:
        """An attempt that is about to run; None where there is none to be made."""
        function = self._functions().get((claimed.lane.type, claimed.lane.version))
        if function is None:  # it was served a moment ago
            self._put_down(claimed)
            return None
        attempt = Attempt(claimed, function, self._executors.choose(function, claimed), self, now)
        timeout = function.traits.timeout
        limited = timeout is not None or claimed.expires_in is not None
        left = time_left(claimed, self._loop.time() - since) if limited else inf
        if claimed.cancel_requested or left <= 0:
            outcome = Cancelled() if claimed.cancel_requested else Expired()
            self._settling.add(Ended(claimed, attempt.settle(outcome), 0.0))
            return None
        self._moves += 1
        self._running.add(attempt)
        self._ahead.begin(attempt)
        if limited and (end := first_end(left, timeout)):
            attempt.timer = self._loop.call_later(end[0], attempt.stop, end[1])
        return attempt

    def stopping(self, attempt: Attempt) -> None:
        if attempt not in self._running:
            return  # what an ended function left behind
        if attempt.timer:
            attempt.timer.cancel()
        patience = _STOPPING * (_ANEW if attempt.begins_anew else 1)
        attempt.timer = self._loop.call_later(patience, self._lose_patience, attempt)

    def _lose_patience(self, attempt: Attempt) -> None:
        if attempt.began is None:
            self._give_up(attempt)
            return
        self._beside(self._give_up_last(attempt))

    async def _give_up_last(self, attempt: Attempt) -> None:
        try:
            await attempt.keep_deeds()
        except Exception:
            task = attempt.claimed.lease.task
            logger.exception("task %s: its next try may do again what it did", task)
        if attempt in self._running:
            self._give_up(attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """It goes on although it was stopped, but its task is not held up. Its slot stays taken,
        unless it only waited and had none."""
        task, waited = attempt.claimed.lease.task, attempt.resting
        if not attempt.is_over:
            logger.error(
                "task %s goes on although %s%s. Does it catch asyncio.CancelledError or "
                "BaseException and not raise it again?",
                task,
                (attempt.why or Why.DRAIN).value,
                "" if waited else "; it keeps its slot until it ends",
            )
        if attempt.ends_itself and not self._closed:
            return
        orphans = attempt.began.disown() if attempt.began else ()
        again = any(former.claimed.lease.task == task for former in self._defiant)
        settlement = attempt.given_up(again=again)
        if settlement and (settlement.verdict.final or attempt.begins_anew):
            attempt.orphans = orphans
        self._end(attempt, settlement, self.holding.now())
        self._beside(attempt.undo_rows())
        self._defiant.add(attempt)
        if waited:
            attempt.resting = True
            self._resting.add(attempt)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        doing = self._loop.create_task(work)
        self._slots.add(doing)
        doing.add_done_callback(self._slots.discard)

    def _end(self, attempt: Attempt, settlement: Settlement | None, now: int) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        self._moves += 1
        self._running.discard(attempt)
        self._defiant.discard(attempt)
        if attempt.claimed.alone:
            self._solitude.left(attempt)
        if attempt.began:
            self._wakes(attempt)
            self.awake.drop(attempt)
        if not attempt.ended:
            attempt.ended = True
            self._settle(attempt, settlement, now)
        if len(self._ahead) + len(self._running) <= self.count + self._low:
            self._hungry()
        if not self._running:
            self._idle.set()

    def _settle(self, attempt: Attempt, settlement: Settlement | None, now: int) -> None:
        if settlement is None:
            self.holding.drop([attempt.claimed.lease])
            return
        seconds = max(now - attempt.started, 1) / 1_000_000
        # By how many ran beside it, not by the slots: functions that only compute run one by one.
        pace = seconds / (len(self._running) + 1)
        self._average = 0.9 * self._average + 0.1 * pace if self._average else pace
        if attempt.committed:
            self.released(attempt, settlement)
        else:
            self._settling.add(Ended(attempt.claimed, settlement, seconds, attempt.orphans))

    def released(self, attempt: Attempt, settlement: Settlement) -> None:
        """It was written elsewhere."""
        seconds = (self.holding.now() - attempt.started) / 1_000_000
        self._settling.note(Ended(attempt.claimed, settlement, seconds, attempt.orphans))

    def _put_down(self, claimed: Claimed) -> None:
        """Give it back with its place and its attempt: it was not started."""
        settlement = Settlement(verdict=Verdict.HANDED_BACK, refund=True)
        self._settling.add(Ended(claimed, settlement, 0.0))

    # ── functions that wait ──────────────────────────────────────────────────────────────────

    def begin_flow(self, attempt: Attempt, journal: Journal | None) -> Flowing:
        flow = self._begin_flow(attempt, journal)
        if attempt in self._running and attempt.why in (None, Why.CANCEL):
            self.awake.add(attempt)
        else:
            flow.freeze()  # stopped before it asked for anything: its news is the next attempt's
        return flow

    def rest(self, attempt: Attempt) -> None:
        """It only waits: others may have its slot."""
        if not attempt.resting and attempt in self._running:
            attempt.resting = True
            self._resting.add(attempt)
            if self._closed and attempt.began:
                attempt.began.hurry()
            self.fill()
            self._hungry()

    async def resume(self, attempt: Attempt) -> None:
        """It goes on: in its turn, before anything new starts."""
        while attempt.resting and self.occupied >= self.count and not self._closed:
            turn = self._loop.create_future()
            self._returning.append(turn)
            await turn
        if attempt in self._running:
            self._wakes(attempt)
        else:
            self.fill()  # it was given up, and had no slot: its turn is another's

    def offer(self, attempt: Attempt, drafts: Sequence[Draft], *, durable: bool) -> Offer | None:
        """Which of its children start here at once: it will rest, and leave them its slot."""
        if self._adoption is None or self._closed or self._solitude:
            return None
        own = 0 if attempt.resting else 1
        room = self.count - self.occupied - len(self._ahead) + own
        return self._adoption.offer(drafts, room, durable=durable)

    def made(
        self, drafts: Sequence[Draft], written: Written, offer: Offer | None, root: UUID
    ) -> None:
        if self._adoption:
            self._adoption.made(drafts, written, offer, root)

    def _wakes(self, attempt: Attempt) -> None:
        attempt.resting = False
        self._resting.discard(attempt)

    # ── told by the renewal ──────────────────────────────────────────────────────────────────

    def lost(self, leases: Sequence[Lease]) -> None:
        """Stop their work, and write nothing of it."""
        gone = frozenset(leases)
        self._ahead.lost(gone)
        for attempt in self._running.copy():
            if attempt.claimed.lease in gone and not attempt.ended:
                task = attempt.claimed.lease.task
                logger.warning("task %s: its lease is lost, it is stopped", task)
                attempt.context.cancel_requested = True
                attempt.stop(Why.LOST)
        self.holding.drop(leases)
        self.fill()
        self._hungry()

    def cancel(self, tasks: frozenset[UUID]) -> None:
        for claimed in self._ahead.withdraw(tasks):
            self._settling.add(Ended(claimed, Settlement(verdict=Verdict.CANCELLED), 0.0))
        for attempt in self._running.copy():
            if attempt.claimed.lease.task in tasks and not attempt.context.cancel_requested:
                attempt.context.cancel_requested = True
                # A sync function sees it by `check_cancelled`: its thread cannot be stopped.
                traits = attempt.function.traits
                if attempt.function.is_async or traits.isolation or attempt.resting:
                    attempt.stop(Why.CANCEL)
