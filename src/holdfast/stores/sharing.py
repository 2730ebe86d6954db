"""Callers that come together share one commit; one caller's fault is never another's."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from holdfast.errors import KeyConflict, StoreError
from holdfast.tasks.task import Draft

__all__ = ["MOST_SHARED", "Accept", "Accepted", "Sharing", "Together"]

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
_MOST_BYTES = 4 << 20  # of what is asked together
MOST_SHARED = 500  # drafts that share a commit


class Accepted(NamedTuple):
    """The tasks' ids; or, by draft, the conflicts for which nothing was accepted."""

    ids: list[UUID]
    conflicts: dict[UUID, KeyConflict]

    def all_or_none(self) -> list[UUID]:
        """The ids, for one caller; the first conflict is its own, and names the others."""
        for conflict in self.conflicts.values():
            conflict.refused = self.conflicts
            raise conflict
        return self.ids


class _Caller(NamedTuple):
    drafts: Sequence[Draft]
    answer: asyncio.Future[list[UUID]]

    def hear(self, ids: list[UUID]) -> None:
        if not self.answer.done():
            self.answer.set_result(ids)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


Accept = Callable[[Sequence[Draft]], Awaitable[Accepted]]


class _Batches(Generic[C]):
    """The callers of one event loop: whatever comes while the last answer is waited for goes
    together, without a timer. One who comes alone asks in a task of his own, which is quicker."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._nobodys = Context()  # whoever came first: what is done here is done for all
        self._waiting: list[C] = []
        self._serving: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_lonely = True  # lately nobody came together

    def _goes_alone(self) -> bool:
        """Whether this caller asks himself; whoever comes meanwhile waits for `_is_back`."""
        alone = self._is_lonely and not self._is_busy
        self._is_busy = self._is_busy or alone
        return alone

    def _is_back(self) -> None:
        self._is_busy = False
        if self._waiting:
            self._go_on()

    def _wait(self, caller: C) -> None:
        self._waiting.append(caller)
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._serving = self._loop.create_task(self._serve(), context=self._nobodys)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._fitting()]
                del self._waiting[: len(batch)]
                self._is_lonely = len(batch) == 1
                await self._together(batch)
        finally:
            self._is_back()

    def _fitting(self) -> int:
        """How many of those who wait go together; at least one."""
        raise NotImplementedError

    async def _together(self, batch: Sequence[C]) -> None:
        raise NotImplementedError


class Sharing(_Batches[_Caller]):
    """Those who bring drafts."""

    def __init__(self, accept: Accept) -> None:
        super().__init__()
        self._accept = accept

    async def enqueue(self, drafts: Sequence[Draft]) -> list[UUID]:
        """Where it is cancelled, they may have been accepted all the same."""
        if self._goes_alone():
            try:
                return (await self._accept(drafts)).all_or_none()
            finally:
                self._is_back()
        caller = _Caller(drafts, self._loop.create_future())
        self._wait(caller)
        return await caller.answer

    def _fitting(self) -> int:
        size = weight = 0
        for place, caller in enumerate(self._waiting):
            size += len(caller.drafts)
            weight += sum([len(draft.payload) for draft in caller.drafts])
            if place and (size > MOST_SHARED or weight > _MOST_BYTES):
                return place
        return len(self._waiting)

    async def _together(self, batch: Sequence[_Caller]) -> None:
        callers = [caller for caller in batch if not caller.answer.done()]
        if not callers:
            return
        try:
            accepted = await self._accept([draft for c in callers for draft in c.drafts])
        except StoreError as error:  # nobody's fault, and as true for all of them
            for caller in callers:
                caller.fail(_again(error))
        except Exception as error:
            if len(callers) == 1:
                callers[0].fail(error)
            else:
                await self._in_halves(callers)
        else:
            if accepted.conflicts:
                await self._without_conflicts(callers, accepted.conflicts)
            else:
                _answer(callers, accepted.ids)

    async def _in_halves(self, callers: Sequence[_Caller]) -> None:
        middle = len(callers) // 2
        await self._together(callers[:middle])
        await self._together(callers[middle:])

    async def _without_conflicts(
        self, callers: Sequence[_Caller], conflicts: dict[UUID, KeyConflict]
    ) -> None:
        """Those in conflict go, the others try again. Where a key was lost only to somebody who
        goes too, it may be free the next time."""
        owners = {draft.id: n for n, c in enumerate(callers) for draft in c.drafts}
        found = [(owners[id], conflict) for id, conflict in conflicts.items()]
        going = {n for n, _ in found}
        out: dict[int, KeyConflict] = {}
        for n, conflict in found:
            if owners.get(conflict.existing, n) not in going - {n}:
                out.setdefault(n, conflict)
        for n, conflict in out.items():
            callers[n].fail(conflict)
        rest = [caller for n, caller in enumerate(callers) if n not in out]
        await (self._together(rest) if out else self._in_halves(rest))


class Together(_Batches[tuple[T, "asyncio.Future[R]"]], Generic[T, R]):
    """Those whose questions are independent of each other."""

    def __init__(
        self,
        ask: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        weigh: Callable[[T], int],
    ) -> None:
        """`weigh`: bytes of a question; what goes together is bounded."""
        super().__init__()
        self._ask, self._weigh = ask, weigh

    async def ask(self, question: T) -> R:
        """Where it is cancelled, it may have been asked all the same."""
        if self._goes_alone():
            try:
                return (await self._ask([question]))[0]
            finally:
                self._is_back()
        answer: asyncio.Future[R] = self._loop.create_future()
        self._wait((question, answer))
        return await answer

    def _fitting(self) -> int:
        weight = 0
        for place, (question, _) in enumerate(self._waiting[:MOST_SHARED]):
            weight += self._weigh(question)
            if place and weight > _MOST_BYTES:
                return place
        return MOST_SHARED

    async def _together(self, batch: Sequence[tuple[T, "asyncio.Future[R]"]]) -> None:
        try:
            answers = await self._ask([question for question, _ in batch])
        except StoreError as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(_again(error))
        except Exception as error:
            if len(batch) > 1:  # one caller's fault is not another's
                for one in batch:
                    await self._together([one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
        else:
            for (_, answer), found in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(found)


def _answer(callers: Sequence[_Caller], ids: list[UUID]) -> None:
    start = 0
    for caller in callers:
        end = start + len(caller.drafts)
        caller.hear(ids[start:end])
        start = end


def _again(error: StoreError) -> StoreError:
    """One of each caller's own: an error that is raised in many places grows with each."""
    own = type(error)(*error.args)
    own.__cause__ = error.__cause__
    return own
