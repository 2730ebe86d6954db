"""One attempt: from a lease to what follows from its end."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any
from uuid import UUID
from weakref import ref

from holdfast import tracing
from holdfast.answers import Journal, Written
from holdfast.context import Context
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    Parked,
    StoreError,
    TaskCancelled,
    TaskEnds,
)
from holdfast.executor import Executor
from holdfast.executors.outcomes import NeedsWorker, outcome_of
from holdfast.function import Function
from holdfast.tasks.lifecycle import (
    NEVER,
    Anew,
    Cancelled,
    Errored,
    Facts,
    HandedBack,
    Outcome,
    Settlement,
    Verdict,
    Waiting,
    done,
    settle,
)
from holdfast.tasks.task import Claimed, Draft
from holdfast.work.adoption import Offer
from holdfast.work.flowing import Flowing
from holdfast.work.site import Site
from holdfast.work.transaction import Transaction
from holdfast.work.why import TOO_LATE, Reason, Why, outcome_of_stop

logger = logging.getLogger("holdfast.worker")

__all__ = ["Attempt"]

_PARKED = (
    "parked: its code goes on where it is put down, time and again; see that it raises "
    "asyncio.CancelledError again, then retry the task; or cancel it"
)
_KEEPING = 5.0  # seconds that the store has for what a function did that is given up
_FAILING = (Verdict.FAILED, Verdict.CANCELLED, Verdict.RETRY, Verdict.SNOOZED)


class Attempt:
    """What is known of a running attempt. Keeps `holdfast.context.Keeper` for its function."""

    __slots__ = (
        "__dict__", "_context", "_is_read", "_journal", "_site", "_transaction",
        "began", "claimed", "committed", "ended", "executor", "function", "is_over", "orphans",
        "started", "task", "timer", "why",
    )  # fmt: skip

    # Of durable functions that ask for something; most never do, and nobody looks.
    resting = _has_failed = False
    _offer: Offer | None = None  # the last one
    _reason: Reason | None = None  # with which it stopped itself
    _hidden: frozenset[str] | None = None

    def __init__(
        self,
        claimed: Claimed,
        function: Function[..., Any, Any],
        executor: Executor,
        site: Site,
        started: int,
    ) -> None:
        self.claimed, self.function, self.executor, self._site = claimed, function, executor, site
        self._context: Context | ref[Context] = Context(
            claimed,
            self,
            worker_id=site.worker_id,
            max_tries=claimed.max_tries or site.default_tries,
            clock=site.holding.clock,
            secrets=self._secrets,
        )
        self.started = started
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.why: Why | None = None
        self.ended = self.committed = self._is_read = self.is_over = False
        self._transaction: Transaction | None = None
        self._journal: Journal | None = None
        self.began: Flowing | None = None
        self.orphans: Sequence[UUID] = ()  # children that nobody waits for any more

    @property
    def context(self) -> Context:
        found = self._context
        if isinstance(found, Context):
            return found
        context = found()
        assert context is not None, "nobody else asks after the end"
        return context

    def let_go(self) -> None:
        """It has ended by itself. It and its context know each other: both would stay until the
        garbage is collected. From now on only code that has the context leads here. Where there was
        a flow, or a thread that has a context of its own, others may."""
        if self.why is None and self.began is None and self.function.is_async:
            self._context = ref(self.context)

    def _secrets(self) -> frozenset[str]:
        if self._hidden is None:
            places = self.function.signature.places
            self._hidden = self._site.redaction.values(self.claimed.payload, places)
        return self._hidden

    def settle(self, outcome: Outcome) -> Settlement:
        claimed = self.claimed
        facts = Facts(
            tries=claimed.tries,
            max_tries=self.context.max_tries,
            retry=claimed.retry or self.function.traits.retry_policy,
            alone=claimed.alone,
            cancel_requested=self.context.cancel_requested,
            expired=claimed.expired,
        )
        return settle(facts, outcome, random.random())

    def stop(self, why: Why) -> None:
        """The first reason counts."""
        if self.why is None:
            self.why = why
            if self.began and why is not Why.CANCEL:
                self.began.freeze()
            if self.task and not self.is_over:  # else what follows from it is being written
                self.task.cancel()
            self._site.stopping(self)

    def progress(self, percent: float, message: str | None, saved: bytes | None) -> Awaitable[None]:
        return self._site.store.progress(self.claimed.lease, percent, message, saved)

    async def saved(self) -> bytes | None:
        progress = await self._site.store.saved(self.claimed.lease.task)
        return progress.saved if progress else None

    async def release(self, outcome: Outcome) -> None:
        """End the attempt before its function has returned."""
        lease, settlement = self.claimed.lease, self.settle(outcome)
        if self.ended or (self._transaction and self._transaction.is_open):
            raise LeaseLost("release", lease.task, [lease])
        self.ended = True
        try:
            await self._site.keep_logs(lease)
            with self._site.holding.at_rest([lease]):
                refused = await self._site.store.settle(
                    [(lease, settlement)], default_tries=self.context.max_tries
                )
        except BaseException:
            self.ended = False  # it may have been written: settling it once more is harmless
            raise
        if refused:
            self._site.holding.drop([lease])
            raise LeaseLost("release", lease.task, [lease])
        self._site.released(self, settlement)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        if self.is_over or self.ended:
            raise HoldfastError("the attempt has ended: it has no transaction any more")
        if self._transaction is None:
            site = self._site
            self._transaction = Transaction(site.store, self.claimed.lease, site.holding)
        return self._transaction.begin()

    # ── a durable function among others ──────────────────────────────────────────────────────

    @property
    def flow(self) -> Flowing | None:
        """None until the journal is read, and for what an ended function left behind: it is no part
        of it any more."""
        if not self._is_read or (self.is_over and self.began is None):
            return None
        if self.task and not _runs_on(self.task.get_loop()):
            raise HoldfastError(
                "a thread that a coroutine function started cannot ask for anything that is "
                "recorded: await it in the function itself; or make the function sync, and it has "
                "a thread of its own, with Holdfast.run"
            )
        return self.began or self._flow()

    @property
    def may_ask(self) -> bool:
        return self._is_read and not self.is_over and (self.began is None or not self.began.closed)

    @property
    def has_asked(self) -> bool:
        if self.is_over and self.why is None and not self._has_failed:
            return False  # what it left behind is no part of it any more
        return self.began is not None or self.claimed.recorded

    def _flow(self) -> Flowing:
        if self.began is None:
            self.began = self._site.begin_flow(self, self._journal)
            if self.claimed.alone:
                self.began.hurry()  # it keeps its whole worker to itself: not while it waits
        return self.began

    def rest(self) -> None:
        self._site.rest(self)

    async def resume(self) -> None:
        if self.resting:
            await self._site.resume(self)

    def offer(self, drafts: Sequence[Draft], *, durable: bool) -> Offer | None:
        self._offer = self._site.offer(self, drafts, durable=durable)
        return self._offer

    def made(self, drafts: Sequence[Draft], written: Written, offer: Offer | None) -> None:
        self._site.made(drafts, written, offer, self.context.root)

    def in_thread(
        self, work: Callable[[], Any], stopped: Callable[[], None]
    ) -> Awaitable[tuple[Any, BaseException | None]]:
        return self._site.in_thread(work, stopped)

    def stop_for(self, reason: Reason) -> None:
        """The function waits for what may take long, begins anew, or cannot go on."""
        if self.why is not None:
            return
        self._reason = reason
        if isinstance(reason, Anew) and self._transaction:
            self._transaction.begin_anew()
        if isinstance(reason, Waiting | Anew):
            self.stop(Why.WAITS)
        else:
            self.stop(Why.LOST if isinstance(reason, LeaseLost) else Why.FAULT)

    # ── from its start to its end ────────────────────────────────────────────────────────────

    async def run(self) -> Settlement | None:
        """What follows from it; None: write nothing (more). Whatever the function raises ends its
        attempt, and nothing else."""
        try:
            if self.claimed.recorded and not await self._read():
                return self.settle(HandedBack())  # what it may go by is not known
            self._is_read = True
            if tracing.is_on():
                result = await self._traced()
            else:
                result = await self.executor.run(self.function, self.context)
            self.is_over = True
            if self.why in TOO_LATE:
                raise asyncio.CancelledError  # it went on in spite of it: too late
            if self.began or (self._journal and self._journal.steps):
                self._flow().check_finished()
                self.orphans = await self._close(self._flow())
            settlement = done(result)
            if self._transaction is None:
                return settlement
            return await self._commit(settlement)
        except BaseException as error:
            if self.began and self.why is None and not self.is_over:
                with suppress(asyncio.CancelledError):  # it is stopped meanwhile
                    await self.began.let_steps_end()
            self.is_over = self._has_failed = True
            if self.why is not None:
                with suppress(asyncio.CancelledError):  # it stopped itself: that is still to come
                    await asyncio.sleep(0)
            if self.begins_anew:
                return await self._commit_anew(error)
            await self._roll_back(error)
            if self.began is not None:
                return await self._after_flow(error)
            return self._after(error)

    async def _commit(self, settlement: Settlement) -> Settlement | None:
        """With the rows of its transaction, where it has one."""
        if self._transaction is None or not self._transaction.end():
            return settlement
        await self._site.keep_logs(self.claimed.lease)
        try:
            self.committed = await self._transaction.commit(settlement)
        except TaskEnds:
            raise  # with what it leaves behind
        except BaseException:
            self.orphans = ()  # it is not over: the next attempt may wait for them
            raise
        return settlement if self.committed else None

    async def _roll_back(self, error: BaseException) -> None:
        if self._transaction is not None:
            await self._transaction.roll_back(error)

    @property
    def begins_anew(self) -> bool:
        return self.why is Why.WAITS and isinstance(self._reason, Anew)

    async def _commit_anew(self, stopped: BaseException) -> Settlement | None:
        """This run has come to its end, with its rows, unless the task ends with it."""
        settlement = await self._after_flow(stopped)
        if settlement is None or settlement.payload is None:
            await self._roll_back(stopped)
            return settlement
        if self._transaction and not await self._transaction.left():
            await self._roll_back(stopped)
            return None  # as whoever goes on although it was stopped
        try:
            return await self._commit(settlement)
        except TaskEnds:
            return settlement  # by itself, without its rows
        except Exception as error:
            self.why = self._reason = None
            return await self._after_flow(error)

    async def _traced(self) -> bytes:
        with tracing.attempting(self.claimed, self.context.worker_id, self.context.scrub):
            return await self.executor.run(self.function, self.context)

    async def _is_cancelled(self) -> bool:
        """A cancel goes down to the children, and their ends may be heard of first."""
        if not self.context.cancel_requested:
            found = await self._site.store.get(self.claimed.lease.task)
            self.context.cancel_requested = found.cancel_requested
        return self.context.cancel_requested

    async def _read(self) -> bool:
        """The journal; False where the store is in trouble, which is nobody's fault."""
        if self.claimed.life < 0:
            return False
        try:
            self._journal = await self._site.store.journal(self.claimed.lease.task)
        except StoreError as error:
            logger.warning("task %s: its journal cannot be read: %s", self.context.task_id, error)
            return False
        return True

    async def _after_flow(self, error: BaseException) -> Settlement | None:
        flow, settlement = self._flow(), None
        try:
            settlement = self._after(error)
            if isinstance(error, TaskCancelled) and await self._is_cancelled():
                settlement = self.settle(Cancelled())
            if settlement and settlement.verdict in _FAILING and self.why is not Why.WAITS:
                await flow.escape(error, final=settlement.verdict.final)
            elif settlement and settlement.verdict is Verdict.WAITING:
                await flow.keep_notes()
        except LeaseLost:
            settlement = None
        except Exception:
            logger.exception("task %s: its journal could not be finished", self.context.task_id)
        orphans = await self._close(flow)
        if settlement and (settlement.verdict.final or self.begins_anew):
            self.orphans = orphans
        return settlement

    async def keep_deeds(self) -> None:
        """Before it is given up: what it did in other tasks' lives is not done again by its next
        try, as where it has ended by itself."""
        settlement = self.after_stop()
        if self.began and settlement and settlement.verdict in _FAILING and not self.ends_itself:
            with suppress(LeaseLost, TimeoutError):
                async with asyncio.timeout(_KEEPING):
                    error, final = asyncio.CancelledError(), settlement.verdict.final
                    await self.began.escape(error, final=final)

    async def undo_rows(self) -> None:
        """It is given up: what its transaction has locked would hold up its next try."""
        if not self.is_over:  # else it does so itself, or commits
            await self._roll_back(asyncio.CancelledError())

    async def _close(self, flow: Flowing) -> Sequence[UUID]:
        """Not while children are handed over: the answer says which of them are held here."""
        if self._offer:
            await self._offer.heard()
        return await flow.close()

    def _after(self, error: BaseException) -> Settlement | None:
        """What follows from what was raised: by the function, or by stopping it."""
        if self.why not in (None, Why.CANCEL):
            return self.after_stop()
        if isinstance(error, asyncio.CancelledError) and self.why:
            return self.after_stop()  # else it cancelled itself, which is an error like others
        if isinstance(error, LeaseLost) and error.task == self.claimed.lease.task:
            return None
        if isinstance(error, NeedsWorker):
            logger.info("task %s: %s; it will run there, alone", self.context.task_id, error)
            return self.settle(HandedBack())  # granted again, it runs here as the only one
        if isinstance(error, Parked):
            return self._parked(error)
        outcome = outcome_of(error, self.function, self.context)
        if isinstance(outcome, Errored) and self.began and self.began.is_of_a_child(error):
            outcome = Errored(outcome.failure, retryable=False)  # the child had its own tries
        settlement = self.settle(outcome)
        # Its next try comes to the same question again.
        if self.began and self.why is None and settlement.verdict is not Verdict.RETRY:
            mistaken = self.began.mistakes()
            return self._parked(mistaken) if mistaken else settlement
        return settlement

    def _parked(self, why: Parked) -> Settlement:
        return self.settle(Waiting(wakes=NEVER, reason=f"parked: {why}"))

    @property
    def ends_itself(self) -> bool:
        """Its code has ended, and what it came to is being written."""
        return self.is_over and self.why in (None, Why.WAITS, Why.FAULT)

    def given_up(self, *, again: bool) -> Settlement | None:
        """What follows where it goes on although it was stopped. Its rows may be under way.
        `again`: as in a former life that has not ended either, so as it always will."""
        if self.begins_anew and self._transaction is not None:
            return None
        if self.why is Why.WAITS and again:
            return self.settle(Waiting(wakes=NEVER, reason=_PARKED))
        return self.after_stop()

    def after_stop(self) -> Settlement | None:
        """What follows from having been stopped; None: write nothing."""
        outcome = outcome_of_stop(self.why, self._reason, self.function.traits.timeout)
        return None if outcome is None else self.settle(outcome)


def _runs_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
