"""Asking the store for tasks: which lanes, in which turn, and again where an answer was lost."""

import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

from holdfast.answers import ClaimAnswer
from holdfast.errors import StoreError, StoreUnreachable
from holdfast.ids import new_grant
from holdfast.store import Working
from holdfast.tasks.lane import Lane, Serving
from holdfast.tasks.task import Claimed
from holdfast.work.holding import Holding

__all__ = ["Claiming", "Found"]

logger = logging.getLogger("holdfast.worker")
_MOST = 10_000  # in one claim
_MOST_BYTES = 64 << 20  # of payloads in one claim, if they are as large as those of the last
_FIRST = 64  # of which nobody knows how large they are
_ALL_LANES = 500  # up to so many lanes are looked at by each claim
_SOON = (0.5, 2.0)  # seconds after which a claim whose answer was lost is asked for once more
_MOST_ASTRAY = 64  # the oldest: those sent while the store was away for long never arrived


class Found:
    """What a claim brought; `again`: more may be there, ask at once; `was_all`: there was no more,
    though more was asked for."""

    __slots__ = ("again", "next_due", "tasks", "was_all")

    def __init__(
        self, tasks: list[Claimed], next_due: float | None, again: bool, was_all: bool = False
    ) -> None:
        self.tasks, self.next_due, self.again, self.was_all = tasks, next_due, again, was_all


class Astray:
    """A claim whose answer was lost: it may have been granted, or be on its way still."""

    __slots__ = ("_waits", "due", "grant", "sent")

    def __init__(self, grant: UUID, sent: int, waits: Sequence[float]) -> None:
        """`waits`: seconds after it was sent."""
        self.grant, self.sent = grant, sent
        self._waits = deque(sent + round(seconds * 1_000_000) for seconds in waits)
        self.due = self._waits.popleft()

    def wait(self) -> bool:
        """For the next time to ask; False: there is none."""
        if self._waits:
            self.due = self._waits.popleft()
            return True
        return False


class Claiming:
    """Knows the lanes that this worker serves. Nothing is taken ahead from a limited lane."""

    def __init__(
        self,
        store: Working,
        holding: Holding,
        *,
        worker: int,
        serving: Callable[[], Serving],  # the same value as long as nothing changes
        declare: Callable[[], Awaitable[None]],
        lease: timedelta,
        renewal: timedelta,
        durable: Callable[[], bool],
    ) -> None:
        self._store, self._holding, self._worker, self._lease = store, holding, worker, lease
        self._serving, self._declare, self._durable = serving, declare, durable
        every, seconds = renewal.total_seconds(), lease.total_seconds()
        asks = sorted({*_SOON, every, 2 * every})
        self._ask_again = [ask for ask in asks if ask < seconds]
        self._astray: list[Astray] = []
        self._known: int | None = None
        self._served_then: Serving | None = None
        self._lanes: dict[int, Lane] = {}
        self._free: list[int] = []  # lanes without a limit
        self.limited: frozenset[Lane] = frozenset()
        self.free: frozenset[Lane] = frozenset()
        self._most = _MOST  # that one answer can hold, after those that could not
        self._fit = _FIRST  # that it can hold of such as the last were
        self._after: int | None = None
        self._turn = itertools.count(1)
        self._served: dict[str, int] = {}

    def forget(self) -> None:
        """Look the lanes up anew: what this worker serves has changed."""
        self._known = None

    async def claim(self, now: int, ahead: int) -> Found:
        """`now` tasks to start at once from all lanes, `ahead` more to be started soon."""
        if self._known is None or self._serving() is not self._served_then:
            await self._look_up()
        if not self.limited:
            return await self._ask(list(self._lanes), now + ahead)
        found = Found([], None, again=False)
        if now > 0:
            found = await self._ask(list(self._lanes), now)
        if ahead > 0 and len(found.tasks) >= now and self._free:
            try:
                more = await self._ask(self._free, ahead)
            except StoreError:
                if not found.tasks:
                    raise
                return found  # they are granted, and must be run
            found = Found(found.tasks + more.tasks, more.next_due, found.again or more.again)
        return found

    async def _ask(self, lanes: list[int], want: int) -> Found:
        want, sent = min(want, self._most, self._fit), self._holding.now()
        answer = await self._answer(lanes, want, sent)
        self._holding.add((task.lease for task in answer.tasks), sent)
        self._weigh(answer.tasks)
        self._after = answer.contended
        is_new = answer.lanes != self._known  # a tenant may have come, whose turn is before these
        if is_new or self._served or len({lane.tenant for lane in self._lanes.values()}) > 1:
            for tenant in {task.lane.tenant for task in answer.tasks}:
                self._served[tenant] = next(self._turn)
        if is_new:
            self.forget()  # looked up before the next one: what was granted now must be run
            return Found(answer.tasks, answer.next_due, again=True)
        again = answer.contended is not None
        less = len(answer.tasks) < want
        # Of very many lanes one claim looks at some.
        was_all = less and not again and len(self._lanes) == len(lanes) <= _ALL_LANES
        return Found(answer.tasks, answer.next_due, again, was_all)

    async def _answer(self, lanes: list[int], want: int, sent: int) -> ClaimAnswer:
        grant = new_grant()
        try:
            return await self._store.claim(
                worker=self._worker,
                lanes=lanes,
                want=want,
                lease=self._lease,
                grant=grant,
                turns=self._turns(lanes),
                after=self._after,
                durable=self._durable(),
            )
        except StoreUnreachable as error:
            # It may have been granted all the same: what nobody knows of would lapse.
            astray = Astray(grant, sent, self._ask_again)
            tasks = await self._found(astray)
            if tasks is not None:  # it is there: maybe all of it took longer than one waits
                self._halve(want)
            if tasks:
                return ClaimAnswer(
                    grant=grant,
                    tasks=tasks,
                    contended=None,
                    full=False,
                    next_due=None,
                    lanes=self._known or 0,
                )
            self._remember(astray)
            raise error
        except StoreError:
            self._halve(want)  # maybe all of it was more than one answer can hold
            raise

    def _halve(self, want: int) -> None:
        self._most = max(1, want // 2)

    def _weigh(self, tasks: Sequence[Claimed]) -> None:
        """After a refusal a little more each time."""
        self._most = min(self._most + self._most // 8 + 1, _MOST)
        if tasks:
            weight = sum([len(task.payload) for task in tasks]) or 1
            self._fit = max(1, _MOST_BYTES * len(tasks) // weight)

    # ── claims whose answer was lost ─────────────────────────────────────────────────────────

    @property
    def patience(self) -> float | None:
        """Seconds until a claim whose answer was lost should be asked for; None: there is none."""
        if not self._astray:
            return None
        now = self._holding.now()
        return max(0.0, min(one.due for one in self._astray) - now) / 1_000_000

    def went_astray(self, grant: UUID, sent: int) -> None:
        """Something else took tasks for this worker, and its answer was lost."""
        self._remember(Astray(grant, sent, self._ask_again))

    def _remember(self, astray: Astray) -> None:
        if len(self._astray) < _MOST_ASTRAY:
            self._astray.append(astray)

    async def look_for_astray(self, *, at_once: bool = False) -> list[Claimed]:
        """What those brought that are due to be asked for: soon, and with the next two renewals;
        then they lapse. Claims go on meanwhile. `at_once`: also those that are not due yet."""
        now, found = self._holding.now(), list[Claimed]()
        for one in [one for one in self._astray if at_once or one.due <= now]:
            tasks = await self._found(one)
            if tasks or not one.wait():
                self._astray.remove(one)
            if tasks is None:
                break  # it does not answer: no use to ask for the others
            self._holding.add((task.lease for task in tasks), one.sent)
            found += tasks
        return found

    async def _found(self, astray: Astray) -> list[Claimed] | None:
        """None: the store does not answer this either."""
        try:
            tasks = await self._store.claimed(worker=self._worker, grant=astray.grant)
        except StoreError:
            return None
        if tasks:
            logger.info("a claim's answer was lost; its %d tasks are found", len(tasks))
        return tasks

    def _turns(self, lanes: Sequence[int]) -> list[int] | None:
        """Tenants in turn: who was served last comes last."""
        if not self._served:
            return None
        return [self._served.get(self._lanes[lane].tenant, 0) for lane in lanes]

    async def _look_up(self) -> None:
        serving = self._serving()
        if serving is not self._served_then:  # before anything of a new function is claimed
            await self._declare()
        answer = await self._store.lanes()
        self._served_then = serving
        self._known = answer.change
        self._lanes = {id: lane for id, lane in answer.lanes.items() if serving.serves(lane)}
        self._free = [id for id in self._lanes if id not in answer.limited]
        self.free = frozenset(self._lanes[id] for id in self._free)
        self.limited = frozenset(self._lanes[id] for id in answer.limited & self._lanes.keys())
