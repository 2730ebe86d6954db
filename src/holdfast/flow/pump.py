"""Moves a durable function on: what is recorded is handed over in order, what is new is begun.

Results reach the function only once they are recorded (or cannot come in any other order), and
between two of them it runs until it can go no further: so whatever raced once races the same way
again. New asks are written, all in one statement, when the journal has nothing more to tell and
the function can go no further.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context as Variables
from contextvars import copy_context
from datetime import timedelta
from math import inf
from uuid import UUID

import msgspec

from holdfast.answers import Ending, Journal
from holdfast.context import here, running
from holdfast.errors import LeaseLost, Parked
from holdfast.flow.arrivals import Moment
from holdfast.flow.asks import Ask
from holdfast.flow.children import Told
from holdfast.flow.entries import (
    Arrival,
    Asked,
    Came,
    Key,
    One,
    Passed,
    Reached,
    Recorded,
    one_of,
)
from holdfast.flow.host import Host
from holdfast.flow.parking import parked
from holdfast.flow.recording import surely
from holdfast.flow.standing import MANY_TURNS, Standing
from holdfast.store import Store
from holdfast.tasks.lifecycle import Waiting

__all__ = ["TIMEOUT", "Pump", "Step", "has_failed", "outside"]

logger = logging.getLogger("holdfast.flow")
Step = Callable[[Key], Awaitable[Recorded]]
TIMEOUT = "timeout in"  # how timers of asyncio are named
_MOMENT = 0.002  # seconds in which a child that starts here may end, and its end be written
_AT_ONCE = 1000  # in an entry
_LOOK_AGAIN = timedelta(minutes=10)  # for a function that was put down beside a lock, or the like


class Pump(Standing):
    """Hands over what is recorded, begins what is new, waits for the rest."""

    def __init__(self, store: Store, host: Host, journal: Journal | None) -> None:
        """`journal`: None where there is none yet."""
        super().__init__(store, host, journal)
        self._family.stir, self._family.holds = self.stir, self._holds

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
        self._business.hurries = True
        self.stir()

    def stir(self) -> None:
        self._stir.set()
        if self._pump is None and not self.closed:
            self._pump = self.loop.create_task(self._run(), context=outside())

    # ── the pump ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        try:
            while not self.closed:
                await self._quiet()
                if self._family.gates and self._family.let_go(self._goes_first()):
                    await self._quiet()
                if not self._told and self._effects.let_go():
                    await self._quiet()
                if self._effects.unheard:
                    await asyncio.sleep(0)
                    continue
                self._can_stop = False
                if await self._go_on():
                    self._can_stop = True
                    continue
                self._can_stop = True
                if waiting := await self._wait():
                    self._can_stop = False
                    await self._write_rest()
                    if self._effects.under_way:  # begun meanwhile: it would not be known
                        continue
                    if not self.closed:  # else it has failed meanwhile
                        self._host.stop_for(waiting)
                    if self.closed:
                        return
                    self._arrivals.patience = inf  # it is cancelled, and undoes something here
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Parked as disagreed:
            if not self.closed:
                self._host.stop_for(parked(disagreed))
        except BaseException as fault:
            if not isinstance(fault, LeaseLost):
                logger.exception("task %s: its flow cannot go on", self._lease.task)
            self._host.stop_for(fault)
        finally:
            self._effects.let_go()

    async def _write_rest(self) -> None:
        """Before it leaves memory. Timers go on outside of it: all are written down."""
        if timers := [a for a in self.open.values() if a.kind == "timer" and a.position is None]:
            await self._children.record(timers, self.loop.time())
        self._note_passed()
        self._recording.consume(*self._arrivals.lingering())
        await self._recording.flush()

    async def _go_on(self) -> bool:
        """One thing that can be done without waiting."""
        self._faults.settle()
        if self._told:
            self._note_passed()
            self._hand_over()
            return True
        if not self._history.is_told and await self._replays():
            return True
        for ask in self._arrivals.dead():
            ask.again = True
        for ask in self._arrivals.bereft():
            ask.ask_anew()
        if new := [ask for ask in self.open.values() if _is_new(ask)]:
            if left := self._history.unasked(self._asked):
                await self._doubt(left, [ask.key for ask in new])
            else:
                await self._begin(new)
            return True
        if self._unsure:
            await self._make_sure_of_sleeps()
            return True
        if unsure := [ask for ask in self.open.values() if ask.unsure]:
            await self._make_sure(unsure)
            return True
        if self._given_up:
            await self._cancel_given_up()
            return True
        self._keep(self._arrivals.unheard())
        if come := self._arrivals.take():
            self._can_stop = True
            await self._host.resume()
            self._can_stop = False
            await self._take_in(come)
            return True
        return False

    async def _cancel_given_up(self) -> None:
        """But for those that another branch waits for, too: they are that one's children now."""
        given_up = self._given_up[:_AT_ONCE]
        await self._recording.flush()
        nobodys = dict.fromkeys(given_up)
        for ask in self.open.values():
            if ask.task in nobodys:
                ask.is_own = True
                del nobodys[ask.task]
        if nobodys:
            await surely(lambda: self._store.cancel(list(nobodys)))
        del self._given_up[: len(given_up)]

    async def _replays(self) -> bool:
        """One thing that is recorded."""
        if (deed := self._history.lacks(self._is_done)) and await self._may_come(deed):
            return True
        if (arrivals := self._history.take(self.open, self._gone)) is not None:
            self._tell(arrivals)
            return True
        if arrivals := self._history.take_missed(self.open):
            self._tell(arrivals)
            return True
        if spare := self._history.take_spare(self.open):
            self._recording.add(Reached([one.one.ask for one in spare]), decides=True)
            self._tell(spare)
            return True
        return False

    def _keep(self, ran: Sequence[tuple[Ask, Recorded]]) -> None:
        """Steps that nobody waits for: should they be asked for again, what is done is known."""
        for ask, recorded in ran:
            if recorded.failure is None:
                ask.position = self._recording.add(recorded, stays=True)

    def _tell(self, arrivals: Sequence[Arrival]) -> None:
        self._effects.hold()
        self._answer([(self.open.pop(arrival.key), arrival.one) for arrival in arrivals])

    async def _make_sure_of_sleeps(self) -> None:
        if left := self._history.mistaken(self._asked):
            await self._doubt(left, list(self._unsure))
            return
        for waiting in self._unsure.values():
            if not waiting.done():
                waiting.set_result(None)

    async def _make_sure(self, asks: Sequence[Ask]) -> None:
        await self._children.make_sure(asks)

    async def _wait(self) -> Waiting | None:
        """Until something has come; or how to wait outside of memory, after waiting long enough."""
        self._stir.clear()
        if self._arrivals.can_rest():
            self._host.rest()
        waiting = await self._arrivals.wait(
            self._stir, only_us=self._waits_for_us(), is_busy=self._business.would_be_lost
        )
        if waiting and await self._goes_on():
            return None
        # What it waits for may never wake it.
        if waiting and not self._business.hurries and self._business.own != "no":
            timer = _LOOK_AGAIN if waiting.timer is None else min(waiting.timer, _LOOK_AGAIN)
            waiting = msgspec.structs.replace(waiting, timer=timer)
        return waiting

    async def _goes_on(self) -> bool:
        """Whether it takes a step after all: what happens in it may take many turns."""
        before = self._business.moves
        await self._quiet(MANY_TURNS)
        return self._business.moves != before

    async def _begin(self, new: Sequence[Ask]) -> None:
        """Record what is asked for, with the children; and run steps."""
        self._arrivals.begin()
        decides = self._recording.decides  # not what is noted now: it is written with the step
        self._note_passed()
        steps = [ask for ask in new if ask.kind == "step"]
        others = [ask for ask in new if ask.kind != "step"]
        if others:
            others += [a for a in self.open.values() if a.kind == "timer" and a.position is None]
            self._stir.clear()
            # Alone, it is the only thing that can come, and nothing is written before it has.
            alone = len(self.open) == 1 and not self._branches
            starts_here = await self._children.record(others, self.loop.time(), alone=alone)
            if starts_here and not self._told and self._arrivals.can_rest():
                await self._linger()
        elif decides:
            await self._recording.flush()
        for ask in steps:
            if self.closed or ask.done():  # it was given up meanwhile
                continue
            assert ask.run
            context = outside(ask.variables)
            ask.running = self.loop.create_task(self._run_step(ask), context=context)
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

    async def _take_in(self, moments: Sequence[Moment]) -> None:
        """What came, recorded and handed over. Nothing but this was waited for: then it needs no
        commit of its own, since it can come in no other order; but a step must not run again."""
        self._effects.hold()
        while self._effects.unheard and not self.closed:  # noqa: ASYNC110 - a turn or two
            await asyncio.sleep(0)
        come = [one for moment in moments for one in moment]
        alone = len(come) == 1 and len(self.open) == 1 and not self._branches
        if isinstance(come[0][1], Recorded) and come[0][1].failure is None:
            alone = False
        self._note_passed()
        first = self._recording.position
        told = [self._put(moment) for moment in moments]
        # A function that never asked for anything but time needs no journal.
        if not alone and not self._is_plain():
            for ask, _ in come:
                ask.coming = True
            await self._recording.flush(seen=self._arrivals.seen)
            self._note_passed(before=first)
        self._told += told  # one entry after the other, as they are read again
        self._hand_over()

    def _put(self, moment: Moment) -> Told:
        """What came at one moment, added to the journal: one entry, or a step's own."""
        ones: list[tuple[Ask, One]] = []
        place = self._recording.position
        for ask, what in moment:
            if isinstance(what, Recorded):
                ask.position = self._recording.add(what, decides=True)
                ones.append((ask, one_of(what, ask.position)))
            elif ask.position is None:  # a timer that nobody asked to be put down for
                entry = Asked(ask.key, "timer", None, ask.seconds)
                ask.position = self._recording.add(entry)
                ones.append((ask, msgspec.structs.replace(what, ask=ask.position)))
            else:
                ones.append((ask, what))
                if ask.task:
                    self._recording.has_ended(ask.task)
        if kept := [one for ask, one in ones if ask.kind != "step"]:
            plain = all(ask.kind == "child" and one.how == "done" for ask, one in ones)
            place = self._recording.add(Came(kept), decides=not plain)
        return Told(place, ones)

    def _note_passed(self, before: int | None = None, *, acts: bool = False) -> None:
        """What went on by itself, in time for what the function is told, or does, now. `acts`: also
        the branch that just takes a step."""
        if before is None and self._told:
            before = self._told[0].place  # what is handed over next is written already
        if acts and self._family.moving:
            self._family.moving.acts()
        passed, self._family.passed = self._family.passed, []
        new = [past for past in passed if not self._history.deeds.is_known("passed", past)]
        for start in range(0, len(new), _AT_ONCE):
            self._recording.add(Passed(new[start : start + _AT_ONCE], before), decides=True)

    def _is_plain(self) -> bool:
        return self._history.next_position == 0 and all(
            key.name.startswith(TIMEOUT) for key in self._asked
        )

    def _hand_over(self) -> None:
        self._effects.hold()
        told = self._told.popleft().ones
        missed = [(ask, one) for ask, one in told if ask.key not in self.open]
        self._missed += missed
        for ask, one in missed:
            self._arrivals.give_back(ask, one)
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


def outside(of: Variables | None = None) -> Variables:
    """Where no attempt runs: what we do there is not the function's. `of`: with its variables."""
    variables = copy_context() if of is None else of.copy()
    variables.run(running.set, None)
    variables.run(here.set, None)
    return variables
