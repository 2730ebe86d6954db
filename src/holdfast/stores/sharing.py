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


class Sharing:
    """The callers of one event loop."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._waiting: list[_Caller] = []
        self._serving: asyncio.Task[None] | None = None

    async def enqueue(self, drafts: Sequence[Draft]) -> list[UUID]:
        caller = _Caller(drafts, asyncio.get_running_loop().create_future())
        self._waiting.append(caller)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await caller.answer

    async def _serve(self) -> None:
        """Whatever came while the last commit was in flight goes into the next: no timer."""
        try:
            while self._waiting:
                size = 0
                together = []
                for caller in self._waiting:
                    if size and size + len(caller.drafts) > MOST_SHARED:
                        break
                    size += len(caller.drafts)
                    together.append(caller)
                del self._waiting[: len(together)]
                await self._together([c for c in together if not c.answer.done()])
        finally:
            self._serving = None

    async def _together(self, callers: Sequence[_Caller]) -> None:
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


class Together(Generic[T, R]):
    """The callers of one event loop, whose questions are independent of each other: what comes
    while the last answer is waited for is asked together."""

    def __init__(
        self,
        ask: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        weigh: Callable[[T], int],
    ) -> None:
        """`weigh`: bytes of a question; what goes together is bounded."""
        self._ask, self._weigh = ask, weigh
        self._loop = asyncio.get_running_loop()
        self._nobodys = Context()  # whoever asks first: what is done here is done for all
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._is_busy = False
        self._is_lonely = True  # lately nobody came together

    async def ask(self, question: T) -> R:
        """Where it is cancelled, it may have been asked all the same."""
        if self._is_lonely and not self._is_busy:
            return await self._ask_alone(question)
        answer: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append((question, answer))
        self._go_on()
        return await answer

    async def _ask_alone(self, question: T) -> R:
        """In the caller's own task, which is quicker."""
        self._is_busy = True
        try:
            return (await self._ask([question]))[0]
        finally:
            self._is_busy = False
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._serving = self._loop.create_task(self._serve(), context=self._nobodys)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                count = weight = 0
                for question, _ in self._waiting[:MOST_SHARED]:
                    weight += self._weigh(question)
                    if count and weight > _MOST_BYTES:
                        break
                    count += 1
                batch = self._waiting[:count]
                del self._waiting[:count]
                self._is_lonely = count == 1
                await self._together(batch)
        finally:
            self._is_busy = False
            self._go_on()

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
