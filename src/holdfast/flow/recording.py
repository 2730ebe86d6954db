"""Writing the journal of one function: in order, each entry once, under its lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from holdfast.answers import Step, Taking, Written
from holdfast.errors import StoreError, StoreUnreachable
from holdfast.flow.entries import (
    Abandoned,
    Asked,
    Came,
    Dropped,
    Entry,
    Passed,
    Reached,
    Recorded,
    write,
)
from holdfast.store import Flows
from holdfast.tasks.task import Draft, Lease

__all__ = ["Recording", "surely"]

logger = logging.getLogger("holdfast.flow")

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class _Unflushed(NamedTuple):
    """What was written with a child, and may not be on the disk yet."""

    steps: Sequence[Step]
    children: Sequence[Draft]


class Recording:
    """Entries get their places as they are added, and are written together with what comes next:
    nobody outside can tell whether a function knows something that is not written yet."""

    def __init__(self, store: Flows, lease: Lease, position: int) -> None:
        self._store, self._lease, self.position = store, lease, position
        self._pending: list[Step] = []
        self._consumed: list[UUID] = []
        self.turn = asyncio.Lock()  # of whoever writes
        self._unflushed: _Unflushed | None = None
        self.has_written = False  # something that the disk has, in this attempt
        self.decides = False  # it holds what another run might answer otherwise
        self.stays = False  # it holds what the next attempt must know, however this one ends
        self._last_to_stay = -1  # where that is
        self.tail: int | None = None  # from here on nothing was asked and nothing came

    def add(self, entry: Entry, *, decides: bool = False, stays: bool = False) -> int:
        """Answers its place. `decides`: before anything is done on the ground of it, it must be
        written, since another run might come to something else. `stays`: it is done, also where
        the attempt fails."""
        position, self.position = self.position, self.position + 1
        self._pending.append(write(position, entry))
        self._follow(position, entry, kept=stays)
        self.decides = self.decides or decides
        if stays:
            self.stays, self._last_to_stay = True, position
        return position

    def _follow(self, position: int, entry: Entry, *, kept: bool) -> None:
        is_step = isinstance(entry, Recorded) and entry.what == "step" and not kept
        if is_step or isinstance(entry, Asked | Came | Reached):
            self.tail = None
        elif isinstance(entry, Abandoned | Passed | Recorded) and self.tail is None:
            self.tail = position

    def replace(self, position: int, entry: Entry) -> None:
        """What is not written yet becomes something else."""
        places = {step.position: place for place, step in enumerate(self._pending)}
        self._pending[places[position]] = write(position, entry)

    def holds(self, position: int) -> bool:
        """Whether this is not written yet."""
        return any(step.position == position for step in self._pending)

    def consume(self, *signals: UUID) -> None:
        """They leave the queue with what is written next: the function knows of them."""
        self._consumed += signals

    async def flush(self, *, seen: Sequence[int] = ()) -> None:
        """Write all that was added. Raises `LeaseLost`."""
        async with self.turn:
            await self.write_with((), seen=seen)

    async def keep(self, later: Iterable[int]) -> None:
        """Write what stays, of a run that goes another way next time: nothing of it has a place any
        more, nor has it given anything up. Signals that it heard of are not used up. `later`: as
        dropped before."""
        async with self.turn:
            come = [one for one in self._pending if one.position <= self._last_to_stay]
            self._pending = [one for one in come if one.kind not in ("abandoned", "passed")]
            self._consumed.clear()
            if self._pending:
                self.position = self._last_to_stay + 1
                self.add(Dropped([], sorted(later), void=self._pending[0].position))
            await self.write_with(())

    async def write_with(
        self,
        children: Sequence[Draft],
        *,
        seen: Sequence[int] = (),
        taking: Taking | None = None,
    ) -> Written | None:
        """`flush` by whoever has the turn, together with these children; answers what became of
        them. Who asks for children takes it before their entries are added: anybody else would
        write those without them."""
        if self._unflushed:
            await self._write_again(self._unflushed)
        steps, consumed = self._pending.copy(), self._consumed.copy()
        if not steps and not consumed:
            return None
        found = await surely(
            lambda: self._store.record(
                self._lease,
                steps,
                consumed=consumed,
                seen=seen,
                children=children,
                taking=taking,
            )
        )
        self._forget(steps, consumed)
        if taking and not taking.durable and found.leased:
            self._unflushed = _Unflushed(steps, children)
        else:
            self.has_written = True
        return found

    async def _write_again(self, last: _Unflushed) -> None:
        """Nothing is written behind a gap: where the database has crashed since, what did not wait
        for the disk is gone, and is written now. The child then waits in its queue: under its old
        lease nobody might hold it. A store that refuses may take it later."""
        await surely(
            lambda: self._store.record(self._lease, last.steps, children=last.children),
            also=StoreError,
        )
        self._unflushed = None

    def has_ended(self, child: UUID) -> None:
        """Its end is on the disk, and so is all that was written before."""
        if self._unflushed and self._unflushed.children[0].id == child:
            self._unflushed = None

    async def write(self) -> None:
        """As `flush`, for a function that does nothing else meanwhile, and without a task of our
        own. Where it is cancelled, or no answer comes, it may be written: `flush` makes sure."""
        await self.turn.acquire()
        try:
            if self._unflushed:
                await self._write_again(self._unflushed)
            steps, consumed = self._pending.copy(), self._consumed.copy()
            await self._store.record(self._lease, steps, consumed=consumed)
            self._forget(steps, consumed)
            self.has_written = True
        finally:
            self.turn.release()

    def _forget(self, steps: Sequence[Step], consumed: Sequence[UUID]) -> None:
        """They are written."""
        del self._pending[: len(steps)], self._consumed[: len(consumed)]
        self.decides = self.stays = bool(self._pending)

    async def check(self) -> None:
        """Before something is done that no lease guards. Raises `LeaseLost`."""
        await surely(lambda: self._store.record(self._lease, []))

    async def leave(self) -> None:
        """Before the function begins anew: signals that this run took in are not for the next."""
        if self._consumed:
            await self.flush()

    async def ask_again(
        self, entries: Sequence[tuple[int, Entry]], children: Sequence[Draft]
    ) -> list[UUID]:
        """The children's ids once more: nothing new is written."""
        steps = [write(position, entry) for position, entry in entries]
        ask = await surely(lambda: self._store.record(self._lease, steps, children=children))
        return ask.children


async def surely(
    ask: Callable[[], Awaitable[T]], *, also: type[StoreError] = StoreUnreachable
) -> T:
    """Where no answer came it may be written: the same again is accepted. `also`: it is asked again
    after these, too."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await ask()
        except also as error:
            if pause == _FIRST_PAUSE and not isinstance(error, StoreUnreachable):
                logger.warning("a journal cannot be written: %s; trying again", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
