"""One run of a durable function: what it asks for, recorded and handed over in recorded order.

Results reach the function only once they are recorded (or cannot come in any other order), and
between two of them it runs until it can go no further: so whatever raced once races the same way
again. New asks are written, all in one statement, when the journal has nothing more to tell and
the function can go no further.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import Context as Variables
from contextvars import copy_context
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from holdfast.answers import Ending, Journal
from holdfast.context import Context, running
from holdfast.errors import LeaseLost, Parked
from holdfast.executors.watched import Watched
from holdfast.flow.arrivals import Arrivals
from holdfast.flow.asks import Ask, Join, Kind, PutDown, Timer
from holdfast.flow.blocking import hand_on
from holdfast.flow.branches import Branch, here
from holdfast.flow.entries import Abandoned, Again, Asked, Came, Dropped, Holder, Key, One, Recorded
from holdfast.flow.history import History
from holdfast.flow.recording import Recording
from holdfast.function import Function
from holdfast.store import Store
from holdfast.tasks.lifecycle import NEVER, Snoozed, Waiting
from holdfast.tasks.task import Failure

__all__ = ["Flow", "Host", "disagreement"]

logger = logging.getLogger("holdfast.flow")
Step = Callable[[], Awaitable[bytes | Failure]]
_TURNS = 8  # of the event loop without a step of the function: no chain of callbacks is longer


class Host(Protocol):
    """The attempt that a flow runs in."""

    @property
    def context(self) -> Context: ...

    @property
    def function(self) -> Function[..., Any, Any]: ...

    def stop_for(self, reason: Waiting | Snoozed | BaseException) -> None:
        """End the attempt: the function waits, begins anew, or could not go on."""
        ...

    def rest(self) -> None:
        """It only waits, and needs no slot."""
        ...

    def resume(self) -> Awaitable[None]:
        """It goes on, once it has a slot again."""
        ...


class Flow:
    """The journal and the open asks of one attempt."""

    def __init__(self, store: Store, host: Host, journal: Journal | None) -> None:
        """`journal`: None where there is none yet."""
        self.loop = asyncio.get_running_loop()
        self._store, self._host = store, host
        self._lease = host.context.claimed.lease
        self._history = History(journal.steps, journal.ages) if journal else History()
        self._recording = Recording(store, self._lease, self._history.next_position)
        self._main = Branch()
        self._branches: set[Branch] = set()
        self._moves = 0  # of branches that have ended
        self._asked: set[Key] = set()
        self.open: dict[Key, Ask] = {}
        self._arrivals = Arrivals(store, self._lease.task, self.open, self.loop)
        self._raised: list[tuple[BaseException, Ask]] = []
        self._patches: set[str] = set()
        self._given_up: list[UUID] = []
        self._stir = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._led: asyncio.Task[Any] | None = None
        self.closed = False

    # ── asked by the function ────────────────────────────────────────────────────────────────

    @property
    def context(self) -> Context:
        return self._host.context

    @property
    def branch(self) -> Branch:
        return here.get() or self._main

    def ask(self, kind: Kind, name: str, digest: str = "") -> Ask:
        """To be awaited, once it is filled in and `begin` was called with it."""
        if self.closed:
            raise PutDown
        ask = Ask(self, kind, self.branch.key(name, digest))
        self._asked.add(ask.key)
        return ask

    def begin(self, ask: Ask) -> Ask:
        if (begun := self._history.begun.get(ask.key)) and not begun.abandoned:
            ask.position, ask.task, ask.again = begun.position, begun.task, begun.again
            ask.is_own = begun.task == begun.asked.task
            if begun.asked.seconds is not None:
                ask.due = self.loop.time() + begun.asked.seconds - begun.age
        if self.is_alone() and (arrival := self._history.is_next(ask.key)):
            self._answer(ask, arrival.one)
            return ask
        self.open[ask.key] = ask
        self.stir()
        return ask

    def is_alone(self) -> bool:
        """Whether the function is a single thread of code that waits for nothing."""
        return not self.open and not self._branches

    def value(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Taken once, and the same in every run."""
        key = self.branch.key(name, "")
        if found := self._history.value(key):
            return bytes(found.result)
        made = make()
        self._recording.add(Recorded(key, result=msgspec.Raw(made), what="value"))
        return made

    def patched(self, name: str) -> bool:
        key = Key("", f"patch {name}", "", 0)
        if name in self._patches or self._history.value(key):
            return True
        if not self._history.is_exhausted:
            return False
        self._patches.add(name)
        self._recording.add(Recorded(key, result=msgspec.Raw(b"true"), what="value"))
        return True

    def timer(
        self,
        where: str,
        seconds: float,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        variables: Variables,
    ) -> asyncio.TimerHandle:
        """The timer of `asyncio.timeout` or `wait_for`: recorded like all that decides a race."""
        due = self.loop.time() + seconds
        handle = Timer(due, call, args, self.loop, variables)
        ask = handle.ask = self.ask("timer", f"timeout in {where}")
        ask.seconds, ask.due = max(0.0, seconds), due
        ask.act = lambda: None if handle.cancelled() else variables.run(call, *args)
        self.begin(ask)
        return handle

    async def run_here(self, name: str, digest: str, run: Step) -> tuple[Ask, One]:
        """A step of a function that does nothing else meanwhile."""
        ask = self.ask("step", name, digest)
        if self._recording.holds_values:
            await self._ours(self._recording.flush())
        recorded = await _ran(ask.key, run)
        position = self._recording.add(recorded)
        # A failure is written with what comes next: if nothing does, the step runs again.
        if recorded.failure is None:
            await self._ours(self._recording.flush())
            ask.position = position
        return ask, _one_of(recorded, position)

    def can_run_here(self) -> bool:
        return self.is_alone() and self._history.is_exhausted and not self.closed

    async def _ours(self, work: Any) -> Any:
        """Not the function's own: it is done also where the function is cancelled meanwhile."""
        task = self.loop.create_task(work, context=_outside())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise

    async def start_anew(self, payload: bytes) -> None:
        """The journal is emptied: from here on this run counts no more."""
        if self.closed:
            raise PutDown
        await self._ours(self._recording.restart(payload))
        self._host.stop_for(Snoozed(timedelta(0)))
        await self.loop.create_future()

    def give_up(self, ask: Ask) -> None:
        """It was cancelled: by a timeout, by the function, or because it ends."""
        self.open.pop(ask.key, None)
        if self.closed:
            return
        if ask.kind == "child" and ask.position is not None:
            self._recording.add(Abandoned([ask.position]))
            if ask.task and ask.is_own:
                self._given_up.append(ask.task)
        self.stir()

    def raises(self, error: BaseException, ask: Ask) -> BaseException:
        """The function is told of this failure."""
        self._raised.append((error, ask))
        return error

    def lead(self, work: Coroutine[Any, Any, Any], answer: "Future[Any]") -> None:
        """Work of a function that is no coroutine itself: its main branch, for now."""
        watched = self._host.context.watched = Watched(work)
        task = asyncio.Task(watched, loop=self.loop, context=_outside())
        self._led = task
        task.add_done_callback(lambda done: hand_on(done, answer))

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
            self._pump = self.loop.create_task(self._run(), context=_outside())

    def branch_out(self, name: str) -> Branch:
        branch = self.branch.grow(name)
        self._branches.add(branch)
        return branch

    def joined(self, branch: Branch) -> None:
        self._branches.discard(branch)
        self._moves += branch.watched.moves if branch.watched else 0
        self.stir()

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def check_finished(self) -> None:
        """The function returned. Raises `Parked` where the journal knows of more than it asked."""
        if left := self._history.unasked(self._asked):
            raise disagreement(left, [])

    def is_of_a_child(self, error: BaseException) -> bool:
        return any(error is raised and ask.kind == "child" for raised, ask in self._raised)

    async def escape(self, error: BaseException, *, for_good: bool) -> None:
        """The function raised this. Failures of steps that it lets through run again in the next
        attempt, those of children only in the next life: they had their own tries."""
        chain = _chain(error)
        drop = {
            ask.position
            for raised, ask in self._raised
            if id(raised) in chain and ask.position is not None and (for_good or ask.kind == "step")
        }
        if drop:
            self._recording.add(Dropped(sorted(drop)))
            await self._recording.flush()

    async def close(self) -> list[UUID]:
        """Nothing is asked or written any more. Answers the children that nobody waits for."""
        self.closed = True
        if self._pump:
            self._pump.cancel()
            await asyncio.wait({self._pump})
        asks = list(self.open.values())
        for ask in asks:
            ask.cancel()
        if self._led:
            self._led.cancel()
        return [ask.task for ask in asks if ask.kind == "child" and ask.task and ask.is_own]

    # ── the pump ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        try:
            while not self.closed:
                await self._quiet()
                if not await self._go_on() and (waiting := await self._wait()):
                    self._host.stop_for(waiting)
                    return
        except asyncio.CancelledError:
            raise
        except Parked as parked:
            self._host.stop_for(Waiting(wakes=NEVER, reason=f"parked: {parked}"))
        except BaseException as fault:
            if not isinstance(fault, LeaseLost):
                logger.exception("task %s: its flow cannot go on", self._lease.task)
            self._host.stop_for(fault)

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
        alive = sum(b.watched.moves for b in self._branches if b.watched)
        return self._moves + alive + (self._watched.moves if self._watched else 0)

    @property
    def _watched(self) -> Watched | None:
        watched: Watched | None = self._host.context.watched
        return watched

    async def _go_on(self) -> bool:
        """One thing that can be done without waiting."""
        if arrivals := self._history.take(self.open):
            for arrival in arrivals:
                self._answer(self.open.pop(arrival.key), arrival.one)
            return True
        if new := [ask for ask in self.open.values() if _is_new(ask)]:
            if left := self._history.unasked(self._asked):
                raise disagreement(left, [ask.key for ask in new])
            await self._begin(new)
            return True
        if self._given_up:
            given_up, self._given_up = self._given_up, []
            await self._recording.flush()
            await self._store.cancel(given_up)
            return True
        if come := self._arrivals.take():
            await self._host.resume()
            await self._take_in(come)
            return True
        return False

    async def _wait(self) -> Waiting | None:
        """Until something has come; or how to wait outside of memory, after waiting long enough."""
        self._stir.clear()
        if self._arrivals.can_rest():
            self._host.rest()
        return await self._arrivals.wait(self._stir)

    async def _begin(self, new: Sequence[Ask]) -> None:
        """Record what is asked for, with the children; and run steps."""
        self._arrivals.begin()
        steps = [ask for ask in new if ask.kind == "step"]
        others = [ask for ask in new if ask.kind != "step"]
        if others:
            others += [a for a in self.open.values() if a.kind == "timer" and a.position is None]
            await self._record(others)
        elif self._recording.holds_values:
            await self._recording.flush()
        for ask in steps:
            assert ask.run
            ask.running = self.loop.create_task(self._run_step(ask), context=_outside())

    async def _record(self, asks: Sequence[Ask]) -> None:
        if again := [ask for ask in asks if ask.again]:
            self._recording.add(Again([ask.position for ask in again if ask.position is not None]))
        for ask in asks:
            if not ask.again:
                task = ask.draft.id if ask.draft else None
                ask.task = task
                ask.position = self._recording.add(Asked(ask.key, ask.kind, task, ask.seconds))  # type: ignore[arg-type]
                if ask.seconds is not None and ask.due is None:
                    ask.due = self.loop.time() + ask.seconds
        made = [ask for ask in asks if ask.draft and not ask.again]
        ids = await self._recording.flush([ask.draft for ask in made if ask.draft])
        for ask, id in zip(made, ids, strict=True):
            if id != ask.task:
                ask.task, ask.is_own = id, False
                self._recording.add(Holder(ask.position or 0, id))
        if again:
            await self._store.retry([ask.task for ask in again if ask.task])
            for ask in again:
                ask.again = False

    async def _run_step(self, ask: Ask) -> None:
        assert ask.run
        self._arrivals.ran.append((ask, await _ran(ask.key, ask.run)))
        self.stir()

    async def _take_in(self, come: Sequence[tuple[Ask, One | Recorded]]) -> None:
        """What came, recorded and handed over. Nothing but this was waited for: then it needs no
        commit of its own, since it can come in no other order."""
        alone = len(come) == 1 and len(self.open) == 1 and not self._branches
        ones: list[tuple[Ask, One]] = []
        for ask, what in come:
            if isinstance(what, Recorded):
                ask.position = self._recording.add(what)
                ones.append((ask, _one_of(what, ask.position)))
            else:
                ones.append((ask, what))
        if unrecorded := [ask for ask, _ in come if ask.position is None]:
            await self._record(unrecorded)  # timers that nobody asked to be put down for
        kept = [
            msgspec.structs.replace(one, ask=ask.position)
            for ask, one in ones
            if ask.kind != "step"
        ]
        if kept:
            self._recording.add(Came(kept))
        for signal in self._arrivals.consumed():
            self._recording.consume(signal)
        if not alone:
            await self._recording.flush(seen=self._arrivals.seen)
        for ask, one in ones:
            if self.open.pop(ask.key, None):
                self._answer(ask, one)

    def _answer(self, ask: Ask, one: One) -> None:
        if ask.done():
            return
        if ask.position is None:
            ask.position = one.ask
        ask.set_result(one)
        if ask.act:
            ask.act()


def _is_new(ask: Ask) -> bool:
    """Whether it is to be begun: a timer alone begins nothing."""
    if ask.kind == "step":
        return ask.running is None
    return (ask.position is None and ask.kind != "timer") or ask.again


async def _ran(key: Key, run: Step) -> Recorded:
    result = await run()
    if isinstance(result, Failure):
        return Recorded(key, failure=result)
    return Recorded(key, result=msgspec.Raw(result))


def _one_of(recorded: Recorded, position: int) -> One:
    how: Any = "done" if recorded.failure is None else "failed"
    return One(position, how, recorded.result, recorded.failure)


def _outside() -> Variables:
    """Where no attempt runs: what we do there is not the function's."""
    variables = copy_context()
    variables.run(running.set, None)
    variables.run(here.set, None)
    return variables


def _chain(error: BaseException) -> set[int]:
    """The error, its causes and its parts, by identity."""
    found: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in found or len(found) > 1000:
            continue
        found.add(id(each))
        todo += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
    return found


def disagreement(recorded: Sequence[Key], asked: Sequence[Key]) -> Parked:
    lines = ["the code does not ask for what is recorded of this run"]
    lines += [f"- recorded, not asked: {key}" for key in recorded[:10]]
    lines += [f"+ asked, not recorded: {key}" for key in asked[:10]]
    lines.append("mend the code (or use version= or patched), then retry the task; or cancel it")
    return Parked("\n".join(lines))
