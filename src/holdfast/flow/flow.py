"""One run of a durable function: what it asks for, and how it ends."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context as Variables
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from holdfast.context import Effect
from holdfast.errors import HoldfastError, StoreUnreachable
from holdfast.executors.watched import Watched
from holdfast.flow.asks import Ask, Join, Kind, PutDown, Timer
from holdfast.flow.blocking import hand_on
from holdfast.flow.branches import Branch
from holdfast.flow.ending import Ending
from holdfast.flow.entries import Abandoned, Key, One, Recorded
from holdfast.flow.parking import disagreement, parked
from holdfast.flow.pump import TIMEOUT, Step, outside
from holdfast.ids import derived_id
from holdfast.tasks.lifecycle import Anew
from holdfast.tasks.payload import check_payload

__all__ = ["Flow"]


_PATIENCE = 10  # asks that are refused at once
_LOOK = 0.1  # seconds


class Flow(Ending):
    """The asks of one attempt."""

    _refused = 0  # asks of a function that has left

    # ── asked by the function ────────────────────────────────────────────────────────────────

    async def check_open(self) -> None:
        """Whoever was put down and goes on in spite of it hears so each time; if it goes round in a
        circle, ever more slowly, so that others have the event loop."""
        if self.closed:
            self._refused += 1
            if self._refused > _PATIENCE:
                await asyncio.sleep(0.001 * 2 ** min(self._refused - _PATIENCE, 10))
            raise PutDown

    def ask(self, kind: Kind, name: str, digest: str = "") -> Ask:
        """To be awaited, once it is filled in and `begin` was called with it."""
        return Ask(self, kind, self._key(name, digest, acts=kind != "timer"))

    def _key(self, name: str, digest: str, *, acts: bool = True) -> Key:
        """`acts`: by asking for this, the function does something about what failed."""
        if self.closed:
            raise PutDown
        if asyncio.get_running_loop() is not self.loop:
            raise HoldfastError(
                "a durable function asks on the event loop of its worker: in a sync function use "
                "Holdfast.run(...) instead of asyncio.run(...)"
            )
        branch = self.branch
        key = branch.key(name, digest)
        self._asked.add(key)
        if acts and self._faults.open:
            self._faults.acted(branch)
        return key

    def begin(self, ask: Ask) -> Ask:
        begun = self._history.begun.get(ask.key)
        # What never became a task is asked for as if for the first time.
        goes_on = begun and begun.abandoned is None and not (begun.again and begun.task is None)
        if begun and goes_on:
            ask.position, ask.task, ask.again = begun.position, begun.task, begun.again
            ask.reborn = begun.reborn
            ask.is_own = begun.task == begun.asked.task
            keyed = ask.draft is not None and ask.draft.key is not None
            ask.unsure = keyed and ask.is_own and ask.task is not None
            if begun.asked.seconds is not None:
                ask.due = self.loop.time() + begun.asked.seconds - begun.age
        # Not a timer: what it is to end has not begun yet.
        at_once = ask.kind != "timer" and self.is_alone()
        if at_once and (arrival := self._history.is_next(ask.key)):
            self._answer([(ask, arrival.one)])
            return ask
        self.open[ask.key] = ask
        self.stir()
        return ask

    def heard(self, one: One) -> None:
        """From here on its signal is used up: it leaves the queue with what is written next."""
        if one.signal is not None:
            self._arrivals.use(one.signal)
            if one.signal not in self._history.consumed:
                self._recording.consume(one.signal)

    def miss(self, ask: Ask) -> None:
        """It had come, but whoever awaits it was cancelled first: in every replay too, and a signal
        is for the next."""
        self._arrivals.give_back(ask, ask.result())
        self._gone.add(ask.key)
        if not self.closed:
            self._note_passed(acts=True)
            self._note_given_up(ask)

    def id_of(self, key: Key) -> UUID:
        """Of a child that is asked for: the same where what is recorded of that was forgotten, and
        it is asked for again. Its effects are known by it."""
        times = self._history.times[key]
        return derived_id(self._lease.task, "child", self._first_fence, *key, times)

    def is_alone(self) -> bool:
        """Whether the function is a single thread of code that waits for nothing."""
        return not self.open and not self._branches

    def value(self, kind: str, name: str, make: Callable[[], bytes]) -> bytes:
        """Taken once, and the same in every run. One without a name of its own, where another is
        recorded that nobody took: which of them this is, the code does not say any more."""
        key = self.branch.key(f"{kind} {name}".strip(), "")
        self._taken.add(key)
        if found := self._history.value(key):
            return bytes(found.result)
        if name.startswith("in") and (left := self._history.untaken(key, kind, self._taken)):
            self.park(left, [key])
        made = make()
        self._recording.add(Recorded(key, result=msgspec.Raw(made), what="value"), decides=True)
        return made

    def park(self, recorded: Sequence[Key], asked: Sequence[Key]) -> NoReturn:
        """Code and history disagree."""
        self._host.stop_for(parked(disagreement(recorded, asked)))
        raise PutDown

    async def look(self, name: str, digest: str) -> Effect:
        """What is known of a dispatch or a signal. What it is done on the ground of is written
        first: another run might come to something else."""
        await self.check_open()
        await self._write_grounds()
        await self.check_open()  # it may have failed meanwhile
        branch = self.branch
        if self._faults.open:
            self._faults.acted(branch)
        effect = self._effects.look(branch, name, digest)
        if effect.value is None and not effect.done:
            await self._behind_no_mistake(branch, effect.place)
        if effect.value is not None and not self.is_alone():
            await self._in_its_turn(branch, effect)
        return effect

    async def _behind_no_mistake(self, branch: Branch, place: Key) -> None:
        """A sleep that has the answer of another may have led here. Where that one is for another
        branch to ask for, it may yet; the pump knows when it has, or that it does not."""
        if not (left := self._history.mistaken(self._asked)):
            return
        if here := [key for key in left if key.branch == branch.path]:
            self.park(here, [place])
        waiting = self._unsure[place] = Join(self, waits_for_all=True)
        self.stir()
        try:
            await waiting
        finally:
            del self._unsure[place]
        await self.check_open()

    async def _in_its_turn(self, branch: Branch, effect: Effect) -> None:
        """What is known took its time once: answers that came before it go first again. Whoever is
        cancelled meanwhile leaves after them, as once; but not where they may not come now."""
        turn: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_soon(_come, turn)
        cancelled: asyncio.CancelledError | None = None
        try:
            await turn
        except asyncio.CancelledError as error:
            cancelled = error
        while self._history.comes_before(effect.place) and not self.closed:
            if cancelled and not self._holds(branch):
                break
            try:
                await self._family.gate(branch)
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
        if cancelled:
            raise cancelled

    async def _write_grounds(self) -> None:
        if self._recording.decides:
            await self._ours(self._recording.flush())

    async def carry_out(self, effect: Coroutine[Any, Any, bytes]) -> bytes:
        work = self.loop.create_task(effect, context=outside())
        self._effects.begin(work)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await self._to_its_end(work)
            raise
        finally:
            self._effects.heard(work)

    async def _to_its_end(self, work: "asyncio.Task[bytes]") -> None:
        """However often its branch is cancelled. The patience is ours: as a timer of the function
        it would be recorded."""
        ending = self.loop.create_task(self._wait_for(work), context=outside())
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({ending})

    async def _wait_for(self, work: "asyncio.Task[bytes]") -> None:
        """As long as the function goes on, it may take its time: what is not known would be done
        again by the next replay. Whether it is stopped is looked at, since not every branch hears
        of that: a group that gives up already does not tell those in it again."""
        while not (work.done() or self.closed or self.context.cancel_requested):
            await asyncio.wait({work}, timeout=_LOOK)
        await self._effects.end([work])

    async def carried_out_elsewhere(self, done: "Future[bytes]") -> None:
        """By a thread, from now on."""
        await self.check_open()

        async def until_then() -> bytes:
            return await asyncio.wrap_future(done)

        self._effects.begin(self.loop.create_task(until_then(), context=outside()))

    async def note(self, effect: Effect, value: bytes, *, decides: bool) -> None:
        """Not while answers are handed over: the function hears of it where it stands."""
        await self._effects.turn()
        while self._history.comes_next(self.open) and not self.closed:
            await self._family.gate(self.branch)
        self._effects.note(effect, value, decides=decides)

    def patched(self, name: str) -> bool:
        """One answer for the whole run, however often it comes by."""
        if name not in self._patches:
            self._patches[name] = self._takes_the_new_way(name)
        return self._patches[name]

    def _takes_the_new_way(self, name: str) -> bool:
        key = Key("", f"patch {name}", "", 0)
        if self._history.value(key):
            return True
        if not self._history.has_passed(self._asked):
            return False
        self._recording.add(Recorded(key, result=msgspec.Raw(b"true"), what="value"), decides=True)
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
        ask = handle.ask = self.ask("timer", f"{TIMEOUT} {where}")
        ask.seconds, ask.due = max(0.0, seconds), due
        ask.act = lambda: None if handle.cancelled() else variables.run(call, *args)
        self.begin(ask)
        return handle

    async def run_here(self, name: str, digest: str, run: Step) -> tuple[Recorded, Ask | None]:
        """A step of a function that does nothing else meanwhile; the ask where it failed."""
        key, recording = self._key(name, digest), self._recording
        if self._family.passed:
            self._note_passed()
        if recording.decides:
            await self._write_grounds()
        recorded = await run(key)
        position = recording.add(recorded, decides=True)
        if recorded.failure is not None:
            # It is written with what comes next: if nothing does, the step runs again.
            ask = Ask(self, "step", key)
            ask.position = position
            self._faults.reached([ask], [ask])
            return recorded, ask
        try:
            await recording.write()
        except (asyncio.CancelledError, StoreUnreachable) as error:
            await self._ours(recording.flush())
            if isinstance(error, asyncio.CancelledError):
                raise
        except HoldfastError as error:
            self._cannot_go_on(error)
        return recorded, None

    def can_run_here(self) -> bool:
        if self.open or self._branches or self.closed:
            return False
        return self._history.is_over and not self._history.mistaken(self._asked)

    async def _ours(self, work: Any) -> Any:
        """Not the function's own: it is done also where the function is cancelled meanwhile."""
        task = self.loop.create_task(work, context=outside())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()):
                self._host.stop_for(error)
            raise
        except HoldfastError as error:
            self._cannot_go_on(error)

    def _cannot_go_on(self, error: HoldfastError) -> NoReturn:
        """No matter of the function's: it must not hear of it."""
        self._host.stop_for(error)
        raise PutDown from None

    async def start_anew(self, payload: bytes) -> None:
        """The next run begins, and the journal is emptied, with the settle of this attempt: until
        then this run counts, and whoever replays it comes here again."""
        await self.check_open()
        if left := self._history.unasked(self._asked):
            self.park(left, [])
        await self._restart(payload)

    async def _restart(self, payload: bytes) -> None:
        check_payload(payload)
        await self._ours(self._recording.leave())
        self._host.stop_for(Anew(payload))
        self._anew = self._anew or self.loop.create_future()
        await self._anew

    def give_up(self, ask: Ask) -> None:
        """It was cancelled: by a timeout, by the function, or because it ends."""
        self.open.pop(ask.key, None)
        self._gone.add(ask.key)
        if not self.closed:
            self._note_passed(acts=True)
        if ask.kind in ("child", "step") and not self.closed:
            self._faults.given_up(ask)
        if ask.kind == "child":
            self._give_up_child(ask)
        elif not self.closed and self._has_begun(ask):
            self._note_given_up(ask)
        self.stir()

    def _has_begun(self, ask: Ask) -> bool:
        """Not a timer, which is given up with its block; but where its end is being written."""
        if ask.kind == "step":
            return ask.running is not None
        return ask.kind != "timer" or ask.coming

    def _note_given_up(self, ask: Ask) -> None:
        if self._history.deeds.is_known("gave up", ask.key):
            return
        if ask.kind == "step":
            self._recording.add(Abandoned([], [ask.key]), decides=True)
        elif ask.position is not None:
            self._recording.add(Abandoned([ask.position]), decides=True)

    def _give_up_child(self, ask: Ask) -> None:
        begun, position = self._history.begun.get(ask.key), ask.position
        if ask.task and ask.is_own:
            self._given_up.append(ask.task)
        elif position is None and begun and not begun.came:
            # It was begun before we crashed: perhaps it was not cancelled, or not even given up.
            if begun.task and begun.task == begun.asked.task:
                self._given_up.append(begun.task)
            position = None if begun.abandoned is not None else begun.position
        if position is not None and not self.closed:
            self._recording.add(Abandoned([position]), decides=True)

    def raises(self, error: BaseException, ask: Ask) -> BaseException:
        """The function is told of this failure."""
        self._raised.append((error, ask))
        return error

    def lead(self, work: Coroutine[Any, Any, Any], answer: "Future[Any]") -> None:
        """Work of a function that is no coroutine itself: its main branch, for now."""
        watched = self.context.watched = Watched(work)
        task = asyncio.Task(watched, loop=self.loop, context=outside())
        self._led = task
        task.add_done_callback(lambda done: hand_on(done, answer))


def _come(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
