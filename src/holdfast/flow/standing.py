"""Where one attempt of a durable function stands: what it asked for, what is recorded of it,
whether it can go further, and whether it may yet come to what it did before."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from holdfast.answers import Journal
from holdfast.context import here
from holdfast.executors.watched import Watched
from holdfast.flow.arrivals import Arrivals
from holdfast.flow.asks import Ask, Join
from holdfast.flow.awaits import own_await
from holdfast.flow.branches import Branch, Family
from holdfast.flow.business import Business
from holdfast.flow.children import Children
from holdfast.flow.deeds import Deed
from holdfast.flow.effects import Effects
from holdfast.flow.entries import Key, One, Past
from holdfast.flow.faults import Faults
from holdfast.flow.history import History
from holdfast.flow.host import Host
from holdfast.flow.parking import disagreement
from holdfast.flow.recording import Recording
from holdfast.store import Store

__all__ = ["MANY_TURNS", "Standing"]

_DOUBT = 5.0  # seconds that a function has for what it awaits, before its code is in doubt
_TURNS = 8  # of the event loop without a step of the function: no chain of callbacks is longer
_PAUSE = 1.0  # seconds between two looks at a function that has to come to something by itself
_SLACK, _LONGEST = 2.0, 60.0  # seconds that others are held for what a branch did once
MANY_TURNS = 200  # before what is recorded is passed over
_NOBODY = "nobody"  # no branch has such a path
_SPIN = 0.05  # seconds in which a function that goes round in a circle is waited for


class Standing:
    """Looks, waits, and changes nothing."""

    def __init__(self, store: Store, host: Host, journal: Journal | None) -> None:
        """`journal`: None where there is none yet."""
        self.loop = asyncio.get_running_loop()
        self._store, self._host = store, host
        self.context = context = host.context
        self._lease = context.claimed.lease
        self._history = History(journal.steps, journal.ages) if journal else History()
        self._first_fence = (journal and journal.since) or context.fence  # of this run
        self._recording = Recording(store, self._lease, self._history.next_position)
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
        if context.watched is not None:
            self._family.lead(context.watched)
        self._branches = self._family.alive
        self._business = Business(
            str(self._lease.task),
            self._family,
            lambda: self._watched,
            lambda: self._led is not None,
            lambda: bool(self._effects.under_way),
        )
        self._asked: set[Key] = set()
        self._taken: set[Key] = set()  # values
        self.open: dict[Key, Ask] = {}
        self._unsure: dict[Key, Join] = {}  # dispatches behind a sleep that may be mistaken
        self._arrivals = Arrivals(
            store, self._lease.task, self.open, self.loop, self._history.returned
        )
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
        self._lacking: Deed | None = None  # recorded, and not done again yet
        self._lacking_since = 0.0
        self._began_at = self.loop.time()
        self._stir = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._led: asyncio.Task[Any] | None = None
        self._anew: asyncio.Future[None] | None = None  # where whoever began anew waits for its end
        self._can_stop = True  # the pump, in the middle of what it does
        self.closed = False

    @property
    def branch(self) -> Branch:
        found: Branch = here.get() or self._family.main
        return found

    # ── whether it can go further ────────────────────────────────────────────────────────────

    async def _quiet(self, still: int = _TURNS) -> None:
        """Until the function can go no further; or goes round in a circle, which ends only with
        what it waits for."""
        turns, seen, late = 0, -1, self.loop.time() + _SPIN
        while turns < still and not self._waits_for_us():
            await asyncio.sleep(0)
            moved = self._business.moves
            if moved != seen:
                turns, seen = 0, moved
                if self.loop.time() > late:
                    return
            turns += 1

    def _waits_for_us(self) -> bool:
        """Whether every branch awaits one of our asks, as far as that is quick to say."""
        watched = self._watched
        if watched is None or len(self._branches) > 4:
            return False
        if not _waits_for_us(watched):
            return False
        return all(_waits_for_us(branch.watched) for branch in self._branches)

    @property
    def _watched(self) -> Watched | None:
        watched: Watched | None = self.context.watched
        return watched

    # ── whether it comes to what is recorded ─────────────────────────────────────────────────

    def _is_done(self, deed: Deed) -> bool:
        """Also where it cannot be: a branch that is not there may have been a library's own."""
        if not isinstance(past := deed.which, Past):
            return past in (self._asked if deed.what == "asked" else self._gone)
        branch = self._family.paths.get(past.branch)
        return branch is None or (branch.asks, branch.passed) >= (past.asks, past.nth)

    def _holds(self, branch: Branch) -> bool:
        """Whether what this branch awaits of its own has ended too early."""
        first = self._goes_first()
        return first is not None and first != branch.path

    def _goes_first(self) -> str | None:
        """The branch whose deed is recorded next, and comes by itself; None: any may go on."""
        if self.closed:
            return None
        deed = self._history.lacks(self._is_done)
        if deed is None:
            return _NOBODY if self._history.comes_next(self.open) else None
        if deed != self._lacking:  # it may be under way
            return _NOBODY if deed.what == "gave up" else deed.which.branch
        doer = self._family.paths.get(deed.which.branch)
        if deed.what == "gave up" or doer is None or own_await(doer.watched) != "surely":
            return None
        return doer.path if self._patience_with(deed) > 0 else None

    def _patience_with(self, deed: Deed) -> float:
        """For how many seconds more others are held for it: what it comes of may be given by them
        (a thread, a stream, a flag that it looks at), so not much longer than it took once."""
        longest = 1.5 * self._history.seconds_until(deed) + _SLACK
        until = min(self._began_at + longest, self._lacking_since + _LONGEST)
        return until - self.loop.time()

    async def _may_come(self, deed: Deed) -> bool:
        """The function had done this when it was told what is next. It is waited for, as long as
        something else than our answers may lead to it."""
        if self._waits_for_us():
            return False
        if deed != self._lacking:
            await self._quiet(MANY_TURNS)
            self._lacking, self._lacking_since = deed, self.loop.time()
        elif self._business.leads_to(deed, self._history.seconds_until(deed)):
            left = self._patience_with(deed) if self._family.gates else 0.0
            await self._pause(min(_PAUSE, left + 0.001) if left > 0 else _PAUSE)
        else:
            self._history.deeds.skip()
        return True

    async def _doubt(self, left: Sequence[Key], new: Sequence[Key]) -> None:
        """Recorded, and not asked. Something may go on that we cannot see."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if not (self.open.keys() | self._unsure.keys()).intersection(new):
            return  # given up, by a timeout of no time at all
        moves, now = self._business.moves, self.loop.time()
        if self._waits_for_us() or self._business.own == "surely":
            raise disagreement(left, new)
        if self._doubts is None or self._doubts[0] != moves:
            self._doubts = moves, now
        if now - self._doubts[1] > _DOUBT:
            raise disagreement(left, new)
        await self._pause(_DOUBT / 100)

    async def _pause(self, longest: float) -> None:
        """Until something happens, in a replay. The last thing that whoever calls it does: the
        pump may be stopped in it."""
        self._stir.clear()
        self._can_stop = True
        with suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._stir.wait()


def _waits_for_us(watched: Watched | None) -> bool:
    waits = watched and watched.waits
    return isinstance(waits, Ask | Join) and waits.is_open
