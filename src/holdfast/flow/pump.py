"""Moves a durable function on: what is recorded is handed over in order, what is new is begun.

Results reach the function only once they are recorded (or cannot come in any other order), and
between two of them it runs until it can go no further: so whatever raced once races the same way
again. New asks are written, all in one statement, when the journal has nothing more to tell and
the function can go no further.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Ending, Journal
from holdfast.context import Context, here, running
from holdfast.errors import LeaseLost, Parked
from holdfast.executors.watched import Watched
from holdfast.flow.arrivals import Arrivals
from holdfast.flow.asks import Ask, Join
from holdfast.flow.branches import Branch, Family
from holdfast.flow.children import Children
from holdfast.flow.effects import Effects
from holdfast.flow.entries import Asked, Came, Key, One, Reached, Recorded
from holdfast.flow.faults import Faults
from holdfast.flow.history import Arrival, History
from holdfast.flow.host import Host
from holdfast.flow.parking import disagreement, parked
from holdfast.flow.recording import Recording, surely
from holdfast.store import Store
from holdfast.tasks.lifecycle import Waiting

__all__ = ["TIMEOUT", "Pump", "Step", "has_failed", "outside"]

logger = logging.getLogger("holdfast.flow")
Step = Callable[[Key], Awaitable[Recorded]]
TIMEOUT = "timeout in"  # how timers of asyncio are named
_DOUBT = 5.0  # seconds that a function has for what it awaits, before its code is in doubt
_MOMENT = 0.002  # seconds in which a child that starts here may end, and its end be written
_TURNS = 8  # of the event loop without a step of the function: no chain of callbacks is longer


class Pump:
    """Hands over what is recorded, begins what is new, waits for the rest."""

    def __init__(self, store: Store, host: Host, journal: Journal | None) -> None:
        """`journal`: None where there is none yet."""
        self.loop = asyncio.get_running_loop()
        self._store, self._host = store, host
        self._lease = host.context.claimed.lease
        self._history = History(journal.steps, journal.ages) if journal else History()
        self._recording = Recording(store, self._lease, self._history.next_position)
        context = host.context
        life = context.claimed.life
        if life and (dropped := self._history.rebirth(life)):
            self._history.drop(dropped)
            self._recording.add(dropped, decides=True, stays=True)
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
        self._children = Children(store, host, self._history, self._recording, self._arrivals)
        self._told = self._children.told  # recorded, and not handed over yet
        self._faults = Faults(self._family)
        self._missed: list[tuple[Ask, One]] = []  # recorded, and nobody waits for it any more
        self._raised: list[tuple[BaseException, Ask]] = []
        self._last_due: Ask | None = None  # the last one whose time was over
        self._patches: dict[str, bool] = {}
        self._given_up: list[UUID] = []
        self._gone: set[Key] = set()  # of asks that were given up
        self._doubts: tuple[int, float] | None = None
        self._stir = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._led: asyncio.Task[Any] | None = None
        self._can_stop = True  # the pump, in the middle of what it does
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
                self._can_stop = False
                if await self._go_on():
                    self._can_stop = True
                    continue
                self._can_stop = True
                if waiting := await self._wait():
                    self._can_stop = False
                    await self._put_down(waiting)
                    return
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Parked as disagreed:
            if not self.closed:
                self._host.stop_for(parked(disagreed))
        except BaseException as fault:
            if not isinstance(fault, LeaseLost):
                logger.exception("task %s: its flow cannot go on", self._lease.task)
            self._host.stop_for(fault)

    async def _put_down(self, waiting: Waiting) -> None:
        """Timers go on outside of memory: all are written down."""
        if timers := [a for a in self.open.values() if a.kind == "timer" and a.position is None]:
            await self._children.record(timers, self.loop.time())
        await self._recording.flush()
        if not self.closed:  # else it has failed meanwhile
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
        return all(isinstance(one, Ask | Join) and one.is_open for one in waits)

    def _total_moves(self) -> int:
        return self._family.moves + (self._watched.moves if self._watched else 0)

    @property
    def _watched(self) -> Watched | None:
        watched: Watched | None = self._host.context.watched
        return watched

    async def _go_on(self) -> bool:
        """One thing that can be done without waiting."""
        self._faults.settle()
        if self._told:
            self._hand_over()
            return True
        if arrivals := self._history.take(self.open, self._gone):
            self._tell(arrivals)
            return True
        if spare := self._history.take_spare(self.open):
            self._recording.add(Reached([one.one.ask for one in spare]), decides=True)
            self._tell(spare)
            return True
        for ask in self._arrivals.dead():
            ask.again = True
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
        self._keep(self._arrivals.unheard())
        if come := self._arrivals.take():
            self._can_stop = True
            await self._host.resume()
            self._can_stop = False
            await self._take_in(come)
            return True
        return False

    def _keep(self, ran: Sequence[tuple[Ask, Recorded]]) -> None:
        """Steps that nobody waits for: should they be asked for again, what is done is known."""
        for ask, recorded in ran:
            if recorded.failure is None:
                ask.position = self._recording.add(recorded, stays=True)

    def _tell(self, arrivals: Sequence[Arrival]) -> None:
        self._answer([(self.open.pop(arrival.key), arrival.one) for arrival in arrivals])

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
        self._can_stop = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_DOUBT / 100):
                await self._stir.wait()

    async def _make_sure(self, asks: Sequence[Ask]) -> None:
        await self._children.make_sure(asks)

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
            self._stir.clear()
            starts_here = await self._children.record(others, self.loop.time())
            if starts_here and not self._told and self._arrivals.can_rest():
                await self._linger()
        elif self._recording.decides:
            await self._recording.flush()
        for ask in steps:
            if self.closed or ask.done():  # it was given up meanwhile
                continue
            assert ask.run
            ask.running = self.loop.create_task(self._run_step(ask), context=outside())
            self._arrivals.under_way.add(ask.running)
            ask.running.add_done_callback(self._stepped)

    async def _linger(self) -> None:
        """A child that starts here may end at once: until then we do nothing, and are in nobody's
        way. On SQLite its end is written by another thread, which needs the interpreter."""
        now = self.loop.time()
        left = min((a.due - now for a in self.open.values() if a.due is not None), default=_MOMENT)
        if left <= 0:
            return  # the time is over, and comes before the child
        self._host.rest()
        late = self.loop.call_later(min(left, _MOMENT), self._stir.set)
        try:
            await self._stir.wait()
        finally:
            late.cancel()

    async def _run_step(self, ask: Ask) -> None:
        assert ask.run
        recorded = await ask.run(ask.key)
        self._arrivals.ran.append((ask, recorded))

    def _stepped(self, step: "asyncio.Task[None]") -> None:
        self._arrivals.under_way.discard(step)
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
                ones.append((ask, _one_of(what, ask.position)))
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
        told = self._told.popleft()
        self._missed += [(ask, one) for ask, one in told if ask.key not in self.open]
        self._answer([(ask, one) for ask, one in told if self.open.pop(ask.key, None)])

    def _answer(self, ones: Sequence[tuple[Ask, One]]) -> None:
        """What reaches the function at one moment."""
        waiting = [(ask, one) for ask, one in ones if not ask.done()]
        for ask, one in waiting:
            if ask.position is None:
                ask.position = one.ask
        if failed := [ask for ask, one in waiting if has_failed(ask.kind, one)]:
            self._faults.reached(failed, [ask for ask, _ in waiting])
        for ask, one in waiting:
            if ask.done():  # given up by what a timer before it has ended
                continue
            if one.how == "due" and ask.kind != "sleep":
                self._last_due = ask
            ask.set_result(one)
            if ask.act:
                ask.act()


def _is_new(ask: Ask) -> bool:
    """Whether it is to be begun: a timer alone begins nothing."""
    if ask.kind == "step":
        return ask.running is None
    return (ask.position is None and ask.kind != "timer") or ask.again


def has_failed(kind: str, one: One) -> bool:
    """Whether this is no answer that was hoped for: also where the time was over."""
    return one.how in ("failed", "cancelled") or (one.how == "due" and kind != "sleep")


def _one_of(recorded: Recorded, position: int) -> One:
    how: Any = "done" if recorded.failure is None else "failed"
    return One(position, how, recorded.result, recorded.failure)


def outside() -> Variables:
    """Where no attempt runs: what we do there is not the function's."""
    variables = copy_context()
    variables.run(running.set, None)
    variables.run(here.set, None)
    return variables
