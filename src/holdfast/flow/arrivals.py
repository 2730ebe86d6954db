"""What has come for a function that waits in memory, and when it had better wait outside of it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain, takewhile
from math import inf
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Ending, Signal
from holdfast.errors import StoreUnreachable
from holdfast.flow.asks import Ask, Join
from holdfast.flow.entries import NULL, Arrival, Key, One, Recorded
from holdfast.store import Flows
from holdfast.tasks.lifecycle import Waiting
from holdfast.tasks.task import TaskStatus

__all__ = ["Arrivals", "Moment"]

Moment = list[tuple[Ask, One | Recorded]]  # what reaches the function at once

_LINGER = 1.0  # seconds that a function stays in memory for what it waits for
_IN_THE_WAY = 0.1  # that, where the child may have to wait until our lease is gone
_FIRST_LOOK, _LONGEST_PAUSE = 0.1, 1.0  # seconds between two looks, where no hint comes
_LARGEST_BATCH = 512 * 1024  # bytes of results that are recorded in one entry
_ONE_BY_ONE = 100  # moments: each takes a turn of every branch, and an entry
_MOMENT = 0.001  # seconds that sleeps which end together may be apart
_STRANGER = 5.0  # seconds between two looks at a task whose end is told to nobody who shares it
_MOST_WATCHED = 1000  # tasks that share their end: each end of one looks at all
_UNWATCHED = 60.0  # seconds between two looks at the others


class Arrivals:
    """Looks at open asks. `told`: children that ended in this process; `ran`: steps that ended;
    `seen`: the wakes that were read, to be forgotten; `dying`: children whose end is no answer;
    `under_way`: steps, also those that were given up and cannot be stopped."""

    def __init__(
        self,
        store: Flows,
        task: UUID,
        open: Mapping[Key, Ask],
        loop: asyncio.AbstractEventLoop,
        returned: dict[UUID, Arrival],
    ) -> None:
        self._store, self._task, self._open, self._loop = store, task, open, loop
        self.told: dict[UUID, Ending] = {}
        self.ran: list[tuple[Ask, Recorded]] = []
        self.seen: list[int] = []
        self.dying: set[Ask] = set()
        self.under_way: set[asyncio.Task[None]] = set()
        self.patience = _LINGER
        self._signals: list[Signal] = []
        self._returned = returned  # signals that were given back: they come first
        self._used: set[UUID] = set()
        self._lingering: list[UUID] = []  # used, and in the queue all the same
        self._since = loop.time()
        self._pause = _FIRST_LOOK
        self._next_look = 0.0
        self._looked_at = -inf
        self._is_told = True  # the last look was answered

    def begin(self) -> None:
        """More is waited for: it may come soon."""
        self._since = now = self._loop.time()
        self._pause = _FIRST_LOOK
        if self._next_look <= now or self._next_look > now + self._pause:
            self._next_look = now + self._pause  # never put off by what is asked meanwhile
        if any(ask.kind == "signal" for ask in self._open.values()):
            self._next_look = now  # it may have come before

    def look_now(self) -> None:
        self._next_look = 0.0

    # ── what has come ────────────────────────────────────────────────────────────────────────

    def take(self) -> list[Moment]:
        """What reaches the function next, one after the other, also where all of it has come while
        nobody was here: whoever comes first may make it give up the others. Steps; or children; or
        one signal, which must not be taken from the queue for nobody; or what is due. Time is over
        only after a look: what came before, while nobody was here or had a slot, is in time."""
        found = self._finished() or _few(self._ended() or self._signalled() or self._due())
        if found:
            self._since = self._loop.time()
        return found

    def unheard(self) -> list[tuple[Ask, Recorded]]:
        """Steps that ended although they were given up."""
        if not self.ran:
            return []
        found = [one for one in self.ran if one[0].key not in self._open]
        self.ran = [one for one in self.ran if one[0].key in self._open]
        return found

    def dead(self) -> list[Ask]:
        """Children that have come to the end that they were told to come to when they were given
        up. They are waited for again."""
        if not self.dying:
            return []
        found = [ask for ask in self.dying if ask.done() or ask.task in self.told]
        self.dying.difference_update(found)
        ended = [ask for ask in found if not ask.done() and ask.task]
        dead = [ask for ask in ended if ask.task and _is_dead(ask, self.told[ask.task])]
        for ask in dead:
            self.told.pop(ask.task or self._task, None)
        return dead

    def bereft(self) -> list[Ask]:
        """Those who waited for a result that somebody else had asked for before, and gave up: a
        cancelled task is nobody's result, so they ask for one of their own."""
        if not self.told:
            return []
        strangers = [a for a in self._open.values() if not a.is_own and a.draft and a.draft.fresh]
        found = [ask for ask in strangers if ask.task and _is_dead(ask, self.told.get(ask.task))]
        for ask in found:
            self.told.pop(ask.task or self._task, None)
        return found

    def has_come(self) -> bool:
        """Whether there is anything to take."""
        return bool(self.ran or self._come() or self._next_signal() or self._due())

    def use(self, signal: UUID) -> None:
        """The function has heard of this one."""
        self._used.add(signal)

    def give_back(self, ask: Ask, one: One) -> None:
        """It was given up just before it heard of what came: a signal is the first for whoever else
        waits for one."""
        if one.signal is not None:
            self._used.discard(one.signal)
            self._returned[one.signal] = Arrival(ask.key, one)

    def lingering(self) -> list[UUID]:
        """Signals that should have left the queue: whoever took them in died before they did."""
        found, self._lingering = self._lingering, []
        return found

    def _finished(self) -> list[Moment]:
        found: list[Moment] = [[one] for one in self.ran]
        self.ran.clear()
        return found

    def _ended(self) -> list[Moment]:
        """Each by itself, in the order in which they ended; but all of a join together."""
        found: dict[Ask | Join, Moment] = {}
        taken: set[Ask] = set()
        size = 0
        for ask, end in self._come().items():
            size += _size(end)
            if found and size > _LARGEST_BATCH:
                break  # the rest is written later
            found.setdefault(ask.join or ask, []).append((ask, _one_of(ask, end)))
            taken.add(ask)
        for task, asks in self._waiting_for_told().items():
            if taken.issuperset(asks):
                del self.told[task]
        return list(found.values())

    def _come(self) -> dict[Ask, Ending]:
        """Children that have ended; those of a join only when it is complete, or broken."""
        asks = self._waiting_for_told()
        come = {ask: end for task, end in self.told.items() for ask in asks.get(task, ())}
        joins = {ask.join for ask in come if ask.join}
        over = {join for join in joins if _is_over(join, come)}
        return {ask: end for ask, end in come.items() if ask.join is None or ask.join in over}

    def _waiting_for_told(self) -> dict[UUID, list[Ask]]:
        """Who waits for each child that has ended: those with one idempotency key share a task."""
        found: dict[UUID, list[Ask]] = {}
        for ask in self._open.values() if self.told else ():
            if ask.kind == "child" and ask.task and ask.task in self.told:
                found.setdefault(ask.task, []).append(ask)
        return found

    def _signalled(self) -> list[Moment]:
        if not (found := self._next_signal()):
            return []
        ask, signal = found
        if not self._returned.pop(signal.id, None):
            self._signals.remove(signal)
        self._used.add(signal.id)
        assert ask.position is not None
        said = msgspec.Raw(signal.payload)
        unfit = ask.refuses(signal.payload) if ask.refuses else None
        how: Any = "failed" if unfit else "done"
        return [[(ask, One(ask.position, how, said, unfit, signal=signal.id))]]

    def _next_signal(self) -> tuple[Ask, Signal] | None:
        """For whoever asked first."""
        if not (self._returned or self._signals):
            return None
        for ask in self._open.values():
            if ask.kind == "signal" and ask.position is not None:
                for signal in chain(self._given_back_to(ask), self._signals):
                    if signal.name == ask.signal:
                        return ask, signal
        return None

    def _given_back_to(self, ask: Ask) -> Iterator[Signal]:
        for id, (key, one) in self._returned.items():
            if key.name == ask.key.name and ask.signal is not None:
                yield Signal(id=id, name=ask.signal, payload=bytes(one.result))

    def _waits_outside(self) -> bool:
        return any(ask.kind in ("child", "signal") for ask in self._open.values())

    def _due_at(self) -> float:
        return min(map(_time_of, self._open.values()), default=inf)

    def _due(self) -> list[Moment]:
        """In the order of their times, which may all be over after an outage. A timer comes by
        itself: what it ends must not come beside it."""
        now = self._loop.time()
        if self._waits_outside():
            now = min(now, self._looked_at)
        over = sorted((ask for ask in self._open.values() if _time_of(ask) <= now), key=_time_of)
        found: list[Moment] = []
        before = -inf
        for ask in list(takewhile(lambda ask: ask.kind != "timer", over)) or over[:1]:
            if _time_of(ask) > before + _MOMENT:
                found.append([])
                before = _time_of(ask)
            found[-1].append((ask, One(-1 if ask.position is None else ask.position, "due")))
        return found

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    def can_rest(self) -> bool:
        """Whether the function can only go on when something comes from outside: then it needs no
        slot, and after a while no memory. Timers of asyncio alone say nothing: something else
        must be going on that they are to end."""
        asks = self._open.values()
        return (
            not self.under_way
            and any(ask.kind in ("child", "sleep", "signal") for ask in asks)
            and not any(ask.kind == "step" for ask in asks)
        )

    async def wait(
        self, stir: asyncio.Event, *, only_us: bool, is_busy: Callable[[], bool]
    ) -> Waiting | None:
        """Until something may have come. Or, after long enough: how to wait outside of memory.
        `only_us`: the function surely awaits nothing of its own. `is_busy`: it does, and that
        would be lost."""
        now = self._loop.time()
        outside, due_at = self._waits_outside(), self._due_at()
        look_at = self._next_look if outside else inf
        if outside and self._is_told:  # else it is asked again soon
            look_at = min(look_at, due_at)
        if now >= look_at:
            await self._look()
            return None
        # What came before it was asked for wakes nobody any more: it leaves after a look at it.
        knows = self._is_told or not outside
        leave_at = self._leave_at(due_at, outside or not only_us) if knows else inf
        if now >= leave_at:
            if not is_busy():
                waiting = await self._leave(due_at)
                return None if is_busy() else waiting
            leave_at = now + _LONGEST_PAUSE
        soonest = min(look_at if outside else due_at, leave_at)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if soonest == inf else soonest - now):
                await stir.wait()
        return None

    def _leave_at(self, due_at: float, outside: bool) -> float:
        if not self.can_rest():
            return inf
        patience = self.patience
        if patience < inf and any(ask.in_the_way for ask in self._open.values()):
            patience = min(patience, _IN_THE_WAY)
        leave_at = self._since + patience
        if not outside and due_at > leave_at:
            return 0.0  # nothing can come before its time
        return leave_at

    async def _leave(self, due_at: float) -> Waiting | None:
        """Where this look is not answered, the wakes that are forgotten are those of the last."""
        looked_at = set(self._open)
        await self._look()
        strangers = self._strangers()
        if strangers and await self._asks_anew(strangers):
            return None
        if self.has_come() or self._open.keys() - looked_at:
            return None
        asks = list(self._open.values())
        watched = list({ask.task: None for ask in strangers if ask.task})
        if unwatched := len(watched[_MOST_WATCHED:]):
            due_at = min(due_at, self._loop.time() + _UNWATCHED)
        if any(ask.untold for ask in strangers):
            due_at = min(due_at, self._loop.time() + _STRANGER)
        left = None if due_at == inf else timedelta(seconds=max(0.0, due_at - self._loop.time()))
        return Waiting(
            timer=left,
            wakes=max(1, self._wakes(asks) - unwatched),
            watched=tuple(watched[:_MOST_WATCHED]),
            seen=tuple(self.seen),
            reason=_reason(asks),
        )

    def _strangers(self) -> list[Ask]:
        """Who waits for tasks that are not our children, and have not ended."""
        asks = self._open.values()
        own = {ask.task for ask in asks if ask.is_own} | self.told.keys()
        return [ask for ask in asks if not ask.is_own and ask.task and ask.task not in own]

    async def _asks_anew(self, strangers: Sequence[Ask]) -> bool:
        """Whether some of them do, for what would never come: it was forgotten meanwhile, or waits
        for us by now. So each gets an answer."""
        try:
            in_vain = await self._store.in_vain(self._task, [a.task for a in strangers if a.task])
        except StoreUnreachable:
            self._is_told = False
            return True
        for ask in strangers:
            if ask.task in in_vain:
                ask.ask_anew()
        return bool(in_vain)

    def _wakes(self, asks: Sequence[Ask]) -> int:
        """How many ends a function waits for: of a join, all; of anything else, the first."""
        join = asks[0].join
        if join is None or any(ask.join is not join for ask in asks):
            return 1
        return max(1, len({ask.task for ask in asks} - self.told.keys()))

    async def _look(self) -> None:
        children = [
            ask.task
            for ask in self._open.values()
            if ask.kind == "child" and ask.task and not ask.again and ask.task not in self.told
        ]
        names = {ask.signal for ask in self._open.values() if ask.signal}
        began = self._loop.time()
        try:
            news = await self._store.news(self._task, children, signals=sorted(names))
        except StoreUnreachable:
            news = None
        self._pause = min(self._pause * 1.5, _LONGEST_PAUSE)
        self._next_look = self._loop.time() + self._pause
        self._is_told = news is not None
        if news:
            self._looked_at = began
            self.seen = news.wakes
            self.told |= news.endings
            others = [one for one in self._signals if one.name not in names]
            known = self._used | self._returned.keys()
            self._signals = others + [one for one in news.signals if one.id not in known]
            self._lingering = [one.id for one in news.signals if one.id in self._used]


def _few(moments: list[Moment]) -> list[Moment]:
    """Who came first matters, not who came as the thousandth: the rest comes together."""
    rest = [one for moment in moments[_ONE_BY_ONE:] for one in moment]
    return [*moments[:_ONE_BY_ONE], rest] if rest else moments


def _time_of(ask: Ask) -> float:
    return inf if ask.due is None else ask.due


def _one_of(ask: Ask, end: Ending) -> One:
    position = -1 if ask.position is None else ask.position
    how: Any = end.status.value
    result = NULL if end.result is None else msgspec.Raw(end.result)
    return One(position, how, result, end.failure)


def _size(end: Ending) -> int:
    """About how many bytes it takes in the journal, rather too many."""
    size = 100 + len(end.result or b"")
    if end.failure:
        size += 4 * len(end.failure.message) + 2 * len(end.failure.detail or b"")
    return size


def _is_dead(ask: Ask, end: Ending | None) -> bool:
    if end is None:
        return False
    return end.status is TaskStatus.CANCELLED or (ask.reborn and end.status is TaskStatus.FAILED)


def _is_over(join: Join, come: Mapping[Ask, Ending]) -> bool:
    """Whether all have come, or one has failed that the others need not be waited for."""
    if all(ask in come or ask.done() for ask in join.asks):
        return True
    failed = any(end.status is not TaskStatus.DONE for a, end in come.items() if a.join is join)
    return failed and not join.waits_for_all


def _reason(asks: Sequence[Ask]) -> str:
    children = sum(ask.kind == "child" for ask in asks)
    signals = sorted({ask.signal for ask in asks if ask.signal})
    parts = [f"{children} {'child' if children == 1 else 'children'}"] if children else []
    parts += [f"signal {name}" for name in signals]
    return f"waits for {' or '.join(parts)}" if parts else "sleeps"
