"""Moves a durable function on: what is recorded is handed over in order, what is new is begun.

Results reach the function only once they are recorded (or cannot come in any other order), and
between two of them it runs until it can go no further: so whatever raced once races the same way
again. New asks are written, all in one statement, when the journal has nothing more to tell and
the function can go no further.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Any, Protocol
from uuid import UUID

import msgspec

from holdfast import tracing
from holdfast.answers import Ending, Journal, Written
from holdfast.context import Context, here, running
from holdfast.errors import KeyConflict, LeaseLost, Parked
from holdfast.executors.failures import failure_of
from holdfast.executors.watched import Watched
from holdfast.flow.arrivals import Arrivals
from holdfast.flow.asks import Ask, Join
from holdfast.flow.branches import Branch, Family
from holdfast.flow.effects import Effects
from holdfast.flow.entries import Again, Asked, Came, Holder, Key, One, Recorded
from holdfast.flow.history import History
from holdfast.flow.recording import Recording, surely
from holdfast.function import Function
from holdfast.store import Store
from holdfast.tasks.lifecycle import NEVER, Anew, Waiting
from holdfast.tasks.task import Draft, Failure

__all__ = ["TIMEOUT", "Host", "Pump", "Step", "disagreement", "one_of", "outside", "ran"]

logger = logging.getLogger("holdfast.flow")
Step = Callable[[], Awaitable[bytes | Failure]]
TIMEOUT = "timeout in"  # how timers of asyncio are named
_DOUBT = 5.0  # seconds that a function has for what it awaits, before its code is in doubt
_TURNS = 8  # of the event loop without a step of the function: no chain of callbacks is longer


class Host(Protocol):
    """The attempt that a flow runs in."""

    @property
    def context(self) -> Context: ...

    @property
    def function(self) -> Function[..., Any, Any]: ...

    def stop_for(self, reason: Waiting | Anew | BaseException) -> None:
        """End the attempt: the function waits, begins anew, or could not go on."""
        ...

    def offer(self, drafts: Sequence[Draft]) -> Any:
        """Who takes the first of these children at once; None: they wait in their queues. Entered
        while they are written."""
        ...

    def made(self, drafts: Sequence[Draft], written: Written, offer: Any) -> None:
        """These children were accepted."""
        ...

    def rest(self) -> None:
        """It only waits, and needs no slot."""
        ...

    def resume(self) -> Awaitable[None]:
        """It goes on, once it has a slot again."""
        ...

    def in_thread(
        self, work: Callable[[], Any], stopped: Callable[[], None]
    ) -> Awaitable[tuple[Any, BaseException | None]]:
        """What this answers or raises, in a thread. `stopped`: nobody waits for it any more."""
        ...


class Pump:
    """Hands over what is recorded, begins what is new, waits for the rest."""

    def __init__(self, store: Store, host: Host, journal: Journal | None) -> None:
        """`journal`: None where there is none yet."""
        self.loop = asyncio.get_running_loop()
        self._store, self._host = store, host
        self._lease = host.context.claimed.lease
        self._history = History(journal.steps, journal.ages) if journal else History()
        if host.context.claimed.reborn:
            self._history.begin_anew()
        self._recording = Recording(store, self._lease, self._history.next_position)
        context = host.context
        self._effects = Effects(
            self._lease.task,
            context.since or -context.fence,
            self._history,
            self._recording,
            context.effects,
        )
        self._family = Family.of(context)
        self._family.stir = self.stir
        self._branches = self._family.alive
        self._asked: set[Key] = set()
        self.open: dict[Key, Ask] = {}
        self._arrivals = Arrivals(store, self._lease.task, self.open, self.loop)
        self._raised: list[tuple[BaseException, Ask]] = []
        self._last_due: Ask | None = None  # the last one whose time was over
        self._patches: set[str] = set()
        self._given_up: list[UUID] = []
        self._gone: set[Key] = set()  # of asks that were given up
        self._told: deque[list[tuple[Ask, One]]] = deque()  # recorded, and not handed over yet
        self._doubts: tuple[int, float] | None = None
        self._stir = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._led: asyncio.Task[Any] | None = None
        self.closed = False

    # ── told from outside ────────────────────────────────────────────────────────────────────

    def hint(self) -> None:
        """Something may have come."""
        self._arrivals.look_now()
        self.stir()

    def ended(self, child: UUID, ending: Ending) -> None:
        """A child has ended, in this very process."""
        self._arrivals.told[child] = ending
        self.stir()

    def hurry(self) -> None:
        """Leave memory as soon as there is nothing to do but wait."""
        self._arrivals.patience = 0.0
        self.stir()

    def stir(self) -> None:
        self._stir.set()
        if self._pump is None and not self.closed:
            self._pump = self.loop.create_task(self._run(), context=outside())

    @property
    def context(self) -> Context:
        return self._host.context

    @property
    def branch(self) -> Branch:
        found: Branch = here.get() or self._family.main
        return found

    # ── the pump ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        try:
            while not self.closed:
                await self._quiet()
                if not await self._go_on() and (waiting := await self._wait()):
                    await self._put_down(waiting)
                    return
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Parked as parked:
            self._host.stop_for(Waiting(wakes=NEVER, reason=f"parked: {parked}"))
        except BaseException as fault:
            if not isinstance(fault, LeaseLost):
                logger.exception("task %s: its flow cannot go on", self._lease.task)
            self._host.stop_for(fault)

    async def _put_down(self, waiting: Waiting) -> None:
        """Timers go on outside of memory: all are written down."""
        if timers := [a for a in self.open.values() if a.kind == "timer" and a.position is None]:
            await self._record(timers)
        await self._recording.flush()
        self._host.stop_for(waiting)

    async def _quiet(self) -> None:
        """Until the function can go no further."""
        turns, seen = 0, -1
        while turns < _TURNS and not self._waits_for_us():
            await asyncio.sleep(0)
            moved = self._total_moves()
            turns, seen = (turns + 1, seen) if moved == seen else (0, moved)

    def _waits_for_us(self) -> bool:
        """Whether every branch awaits one of our asks, as far as that is quick to say."""
        watched = self._watched
        if watched is None or len(self._branches) > 4:
            return False
        waits = [watched.waits, *(b.watched and b.watched.waits for b in self._branches)]
        return all(isinstance(one, Ask | Join) and not one.done() for one in waits)

    def _total_moves(self) -> int:
        return self._family.moves + (self._watched.moves if self._watched else 0)

    @property
    def _watched(self) -> Watched | None:
        watched: Watched | None = self._host.context.watched
        return watched

    async def _go_on(self) -> bool:
        """One thing that can be done without waiting."""
        if self._told:
            self._hand_over()
            return True
        if arrivals := self._history.take(self.open, self._gone):
            for arrival in arrivals:
                self._answer(self.open.pop(arrival.key), arrival.one)
            return True
        if new := [ask for ask in self.open.values() if _is_new(ask)]:
            if left := self._history.unasked(self._asked):
                await self._doubt(left, [ask.key for ask in new])
            else:
                await self._begin(new)
            return True
        if unsure := [ask for ask in self.open.values() if ask.unsure]:
            await self._make_sure(unsure)
            return True
        if self._given_up:
            given_up = self._given_up[:1000]
            await self._recording.flush()
            await surely(lambda: self._store.cancel(given_up))
            del self._given_up[: len(given_up)]
            return True
        if come := self._arrivals.take():
            await self._host.resume()
            await self._take_in(come)
            return True
        return False

    async def _doubt(self, left: Sequence[Key], new: Sequence[Key]) -> None:
        """Recorded, and not asked: it may come where the function awaits something of its own."""
        moves, now = self._total_moves(), self.loop.time()
        if self._waits_for_us():
            raise disagreement(left, new)
        if self._doubts is None or self._doubts[0] != moves:
            self._doubts = moves, now
        if now - self._doubts[1] > _DOUBT:
            raise disagreement(left, new)
        self._stir.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DOUBT / 100):
                await self._stir.wait()

    async def _make_sure(self, asks: Sequence[Ask]) -> None:
        """Whether their tasks are ours: we may have crashed before we could note whose they are."""
        begun = [self._history.begun[ask.key] for ask in asks]
        drafts = [
            msgspec.structs.replace(ask.draft, id=one.asked.task)
            for ask, one in zip(asks, begun, strict=True)
            if ask.draft and one.asked.task
        ]
        ids = await self._recording.ask_again([(one.position, one.asked) for one in begun], drafts)
        for ask, id in zip(asks, ids, strict=True):
            ask.unsure = False
            self._belongs(ask, id)

    def _belongs(self, ask: Ask, task: UUID) -> None:
        if task != ask.task:
            ask.task, ask.is_own = task, False
            self._arrivals.look_now()  # it may have ended long ago
            self._recording.add(Holder(ask.position or 0, task))

    async def _wait(self) -> Waiting | None:
        """Until something has come; or how to wait outside of memory, after waiting long enough."""
        self._stir.clear()
        if self._arrivals.can_rest():
            self._host.rest()
        return await self._arrivals.wait(self._stir, only_us=self._waits_for_us())

    async def _begin(self, new: Sequence[Ask]) -> None:
        """Record what is asked for, with the children; and run steps."""
        self._arrivals.begin()
        steps = [ask for ask in new if ask.kind == "step"]
        others = [ask for ask in new if ask.kind != "step"]
        if others:
            others += [a for a in self.open.values() if a.kind == "timer" and a.position is None]
            await self._record(others)
        elif self._recording.decides:
            await self._recording.flush()
        for ask in steps:
            assert ask.run
            ask.running = self.loop.create_task(self._run_step(ask), context=outside())

    async def _record(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            if not ask.again:
                task = ask.draft.id if ask.draft else None
                ask.task = task
                if ask.due is not None:
                    ask.seconds = max(0.0, ask.due - self.loop.time())
                ask.position = self._recording.add(Asked(ask.key, ask.kind, task, ask.seconds))  # type: ignore[arg-type]
                if ask.seconds is not None and ask.due is None:
                    ask.due = self.loop.time() + ask.seconds
        await self._flush_with([ask for ask in asks if ask.draft and not ask.again])
        if again := [ask for ask in asks if ask.again]:
            await self._revive(again)

    async def _revive(self, asks: Sequence[Ask]) -> None:
        """Their failures were dropped. First the new life, then the note that they have it: a
        crash in between gives it once more, which changes nothing for those who live."""
        await self._recording.check()
        lives = [ask.task for ask in asks if ask.task]
        await surely(lambda: self._store.retry(lives))
        self._recording.add(Again([ask.position for ask in asks if ask.position is not None]))
        await self._recording.flush()
        for ask in asks:
            ask.again = False

    async def _flush_with(self, made: Sequence[Ask]) -> None:
        """Write what is asked for, and accept the children. One whose idempotency key belongs to
        other work has failed by that: it is written so, with the others."""
        told: list[list[tuple[Ask, One]]] = []
        while True:
            try:
                drafts = [ask.draft for ask in made if ask.draft]
                offer = self._host.offer(drafts) if drafts else None
                taking = offer and offer.taking
                with offer or nullcontext(), tracing.sending(drafts) as traced:
                    written = await self._recording.flush(traced, taking=taking)
            except KeyConflict as conflict:
                known = conflict.refused
                refused = [ask for ask in made if ask.draft and ask.draft.id in known]
                if not refused:
                    raise
                told.append([self._refuse(a, known[a.draft.id]) for a in refused if a.draft])
                self._recording.add(Came([one for _, one in told[-1]]), decides=True)
                made = [ask for ask in made if ask not in refused]
                continue
            if drafts and written:
                for ask, id in zip(made, written.children, strict=True):
                    self._belongs(ask, id)
                self._host.made(traced, written, offer)
            self._told += told
            return

    def _refuse(self, ask: Ask, conflict: KeyConflict) -> tuple[Ask, One]:
        """There is no such child, and never was."""
        assert ask.position is not None
        ask.task = None
        self._recording.replace(ask.position, Asked(ask.key, "child"))
        return ask, One(ask.position, "failed", failure=failure_of(conflict))

    async def _run_step(self, ask: Ask) -> None:
        assert ask.run
        recorded = await ran(ask.key, ask.run)
        self._arrivals.ran.append((ask, recorded))
        self.stir()

    async def _take_in(self, come: Sequence[tuple[Ask, One | Recorded]]) -> None:
        """What came, recorded and handed over. Nothing but this was waited for: then it needs no
        commit of its own, since it can come in no other order; but a step must not run again."""
        alone = len(come) == 1 and len(self.open) == 1 and not self._branches
        if isinstance(come[0][1], Recorded) and come[0][1].failure is None:
            alone = False
        ones: list[tuple[Ask, One]] = []
        for ask, what in come:
            if isinstance(what, Recorded):
                ask.position = self._recording.add(what, decides=True)
                ones.append((ask, one_of(what, ask.position)))
            else:
                ones.append((ask, what))
        for ask, _ in come:
            if ask.position is None:  # a timer that nobody asked to be put down for
                entry = Asked(ask.key, "timer", None, ask.seconds)
                ask.position = self._recording.add(entry)
        kept = [
            msgspec.structs.replace(one, ask=ask.position)
            for ask, one in ones
            if ask.kind != "step"
        ]
        if kept:
            plain = all(a.kind == "child" and one.how == "done" for a, one in ones)
            self._recording.add(Came(kept), decides=not plain)
        for signal in self._arrivals.consumed():
            self._recording.consume(signal)
        # A function that never asked for anything but time needs no journal.
        if not alone and not self._is_plain():
            await self._recording.flush(seen=self._arrivals.seen)
        # One entry after the other, as they are read again: what steps came to has one each.
        self._told += [[one] for one in ones] if come[0][0].kind == "step" else [ones]
        self._hand_over()

    def _is_plain(self) -> bool:
        return self._history.next_position == 0 and all(
            key.name.startswith(TIMEOUT) for key in self._asked
        )

    def _hand_over(self) -> None:
        for ask, one in self._told.popleft():
            if self.open.pop(ask.key, None):
                self._answer(ask, one)

    def _answer(self, ask: Ask, one: One) -> None:
        if ask.done():
            return
        if ask.position is None:
            ask.position = one.ask
        if one.how == "due":
            self._last_due = ask
        ask.set_result(one)
        if ask.act:
            ask.act()


def _is_new(ask: Ask) -> bool:
    """Whether it is to be begun: a timer alone begins nothing."""
    if ask.kind == "step":
        return ask.running is None
    return (ask.position is None and ask.kind != "timer") or ask.again


async def ran(key: Key, run: Step) -> Recorded:
    result = await run()
    if isinstance(result, Failure):
        return Recorded(key, failure=result)
    return Recorded(key, result=msgspec.Raw(result))


def one_of(recorded: Recorded, position: int) -> One:
    how: Any = "done" if recorded.failure is None else "failed"
    return One(position, how, recorded.result, recorded.failure)


def outside() -> Variables:
    """Where no attempt runs: what we do there is not the function's."""
    variables = copy_context()
    variables.run(running.set, None)
    variables.run(here.set, None)
    return variables


def disagreement(recorded: Sequence[Key], asked: Sequence[Key]) -> Parked:
    lines = ["the code does not ask for what is recorded of this run"]
    lines += [f"- recorded, not asked: {key}" for key in recorded[:10]]
    lines += [f"+ asked, not recorded: {key}" for key in asked[:10]]
    lines.append("mend the code (or use version= or patched), then retry the task; or cancel it")
    return Parked("\n".join(lines))
