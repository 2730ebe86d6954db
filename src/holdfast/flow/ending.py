"""How an attempt of a durable function ends, and what of it counts for the next one."""

import asyncio
import logging
from collections.abc import Iterator
from uuid import UUID

from holdfast.errors import Parked
from holdfast.flow.asks import Ask
from holdfast.flow.entries import Dropped
from holdfast.flow.parking import disagreement
from holdfast.flow.pump import Pump, has_failed

__all__ = ["Ending"]

logger = logging.getLogger("holdfast.flow")
_PATIENCE = 10.0  # seconds that steps have to end in, beside a function that has failed


class Ending(Pump):
    """What failed and was not acted on runs again; what succeeded stays."""

    def check_finished(self) -> None:
        """The function returned. Raises `Parked` where the journal knows of more than it asked."""
        if left := self._history.unasked(self._asked):
            raise disagreement(left, [])

    def mistakes(self) -> Parked | None:
        """The function raised: behind a sleep that has the answer of another, that is no end."""
        left = self._history.mistaken(self._asked)
        return disagreement(left, []) if left else None

    def is_of_a_child(self, error: BaseException) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.is_of_a_child, error.exceptions))
        return any(error is raised and ask.kind == "child" for raised, ask in self._raised)

    async def let_steps_end(self) -> None:
        """The function failed, and asks for nothing any more. Steps that are under way are waited
        for, since the next attempt must not run them a second time meanwhile: what succeeded is
        recorded, what failed or was cancelled runs again. Coroutines that take long are cancelled;
        threads cannot be."""
        self.freeze()
        if self._pump:
            if self._can_stop:
                self._pump.cancel()
            await asyncio.wait({self._pump})
        if self._arrivals.under_way:
            await asyncio.wait(self._arrivals.under_way, timeout=_PATIENCE)
        for ask in self.open.values():
            if ask.running and not ask.running.done():
                self._end_step(ask)
        if self._arrivals.under_way:
            await asyncio.wait(self._arrivals.under_way)
        self._keep(self._arrivals.ran)
        self._arrivals.ran.clear()

    def _end_step(self, ask: Ask) -> None:
        """It goes on for long, beside a function that has failed."""
        if ask.lasts:
            logger.warning("task %s failed, and waits for its %s", self._lease.task, ask.key)
        elif ask.running:
            ask.running.cancel()

    async def escape(self, error: BaseException, *, final: bool) -> None:
        """The attempt failed with this. What it let through, and what it did nothing about, is no
        answer to the next one: steps run again in it, and children in the next life, since they
        had their own tries. What was being done elsewhere is done first, and known. `final`: the
        next one is a new life."""
        await self._effects.end()
        drop: set[int] = set()
        later = set(self._history.later - self._faults.told)
        for kind, position in self._unhandled(error, final):
            (later if kind == "failed child" else drop).add(position)
        void = self._recording.tail
        changed = bool(drop) or later != self._history.later or void is not None
        known = drop if void is None else drop | {void}
        written = not all(map(self._recording.holds, known)) or later != self._history.later
        if changed and (written or self._must_stay()):
            self._recording.add(Dropped(sorted(drop), sorted(later), void=void))
        if written or self._must_stay():
            await self._recording.flush()

    async def keep_notes(self) -> None:
        """The run is parked: what was done elsewhere is known to whoever goes on with it."""
        self.freeze()
        await self._effects.end()
        if self._recording.stays:
            await self._recording.keep(self._history.later)

    def _unhandled(self, error: BaseException, final: bool) -> Iterator[tuple[str, int]]:
        parts = _parts_of(error)
        escaped = set(map(id, parts))
        faults = self._faults.asks
        asks = [a for a in faults if final or not _is_unfit(a) or self._led_to(error, a)]
        asks += [ask for raised, ask in self._raised if id(raised) in escaped]
        if self._last_due and any(map(_is_of_a_timer, parts)):
            asks.append(self._last_due)
        for ask in asks:
            position = self._place_of(ask)
            if ask.cancelled():
                if ask.kind == "child" and position is not None:
                    yield "child", position
            elif position is not None:
                yield "failed child" if ask.kind == "child" else ask.kind, position
        yield from self._unheard({ask.key for ask in asks} | self.open.keys())

    def _led_to(self, error: BaseException, ask: Ask) -> bool:
        """Whether what this raised ends the attempt, or was being handled as that was raised. Else
        it was caught, and stays until the next life: nobody may ever send another signal."""
        around = set(map(id, _parts_of(error, handled=True)))
        return any(id(raised) in around for raised, of in self._raised if of is ask)

    def _place_of(self, ask: Ask) -> int | None:
        begun = self._history.begun.get(ask.key)
        if ask.position is None and begun and ask.kind == "child" and not begun.came:
            return begun.position
        return ask.position

    def _unheard(self, keys: set[object]) -> Iterator[tuple[str, int]]:
        """Failures that are recorded and reached nobody, of asks whose answers still count: unless
        today's code did not come to where they were heard of before."""
        told = [pair for moment in self._told for pair in moment.ones]
        for ask, one in self._missed + told:
            if ask.key in keys and has_failed(ask.kind, one) and ask.position is not None:
                yield "failed child" if ask.kind == "child" else ask.kind, ask.position
        if self._history.unasked(self._asked):
            return
        for arrival in self._history.untold:
            kind = self._history.kind_of(arrival)
            if arrival.key in keys and has_failed(kind, arrival.one):
                yield "failed child" if kind == "child" else kind, arrival.one.ask

    def _must_stay(self) -> bool:
        """What was dispatched is not dispatched again by the next try of a durable function; but
        an ordinary task, which is recorded nowhere, does all of its work anew."""
        return self._recording.stays and not self._is_plain()

    def freeze(self) -> None:
        """Nothing is asked or written from here on: the function only has to leave."""
        self.closed = True
        self._family.let_go()
        self._stir.set()

    def disown(self) -> list[UUID]:
        """Its attempt was given up: it hears of nothing any more, and must not wait for it. Answers
        the children that nobody waits for."""
        self.freeze()
        for ask in list(self.open.values()):
            (ask.join or ask).cancel()
        for waiting in list(self._unsure.values()):
            waiting.cancel()
        return self._given_up

    async def close(self) -> list[UUID]:
        """Nothing goes on any more. Answers the children that nobody waits for."""
        self.closed = True
        self._family.let_go()
        if self._pump:
            self._pump.cancel()
            await asyncio.wait({self._pump})
        await self._effects.end()
        for ask in list(self.open.values()):
            ask.cancel()
        for step in list(self._arrivals.under_way):
            step.cancel()
        for branch in list(self._branches):
            if branch.task and branch.has_asked:  # else it may be anyone's, such as a pool's
                branch.task.cancel()
        if self._led:
            self._led.cancel()
        if self._anew:
            self._anew.cancel()  # a branch that has asked for nothing, and stands there
        return self._given_up


def _is_of_a_timer(error: BaseException) -> bool:
    """Whether `asyncio.timeout` or `wait_for` raised it: others raise such errors of their own."""
    caused = isinstance(error.__cause__, asyncio.CancelledError)
    return isinstance(error, TimeoutError) and caused


def _is_unfit(ask: Ask) -> bool:
    """A signal that did not fit."""
    if ask.kind != "signal" or not ask.done() or ask.cancelled():
        return False
    return ask.result().how == "failed"


def _parts_of(error: BaseException, *, handled: bool = False) -> list[BaseException]:
    """The error, those it was raised from, and those that it is a group of. Not those that were
    being handled when it was raised, unless `handled`: something may have been done about them."""
    found: dict[int, BaseException] = {}
    todo: list[BaseException | None] = [error]
    while todo and len(found) < 1000:
        each = todo.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        todo.append(each.__cause__)
        if handled:
            todo.append(each.__context__)
        if isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
    return list(found.values())
