"""The children of one function: made with the entries that ask for them, and revived.

Knows what is written of them and what the store says. Never hands anything to the function.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast import tracing
from holdfast.errors import KeyConflict, NotPossible
from holdfast.executors.failures import failure_of
from holdfast.flow.arrivals import Arrivals
from holdfast.flow.asks import Ask
from holdfast.flow.entries import Again, Asked, Came, Holder, One
from holdfast.flow.history import History
from holdfast.flow.host import Host
from holdfast.flow.recording import Recording, surely
from holdfast.store import Store
from holdfast.tasks.task import Task, TaskStatus

__all__ = ["Children", "Told"]

_AT_ONCE = 1000
_ENDED = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)


class Told(NamedTuple):
    """What reaches the function at one moment, and where that is recorded."""

    place: int
    ones: list[tuple[Ask, One]]


class Children:
    """Writes asks down. `told`: what came of some at once, recorded, and to be handed over."""

    def __init__(
        self,
        store: Store,
        host: Host,
        history: History,
        recording: Recording,
        arrivals: Arrivals,
    ) -> None:
        self._store, self._host = store, host
        self._history, self._recording, self._arrivals = history, recording, arrivals
        self.told: deque[Told] = deque()

    async def record(self, asks: Sequence[Ask], now: float, *, alone: bool = False) -> bool:
        """Asks for children, sleeps, signals, timers: written, and the children made. `now`: by
        the clock of the event loop. `alone`: whatever is written next comes after the end of what
        is asked for. Answers whether some of the children start here."""
        async with self._recording.turn:
            asks = [ask for ask in asks if not ask.done()]  # else given up, waiting for the turn
            may_be_lost = alone and bool(asks) and self._may_be_lost(asks[0])
            for ask in asks:
                if not ask.again:
                    self._add(ask, now)
            made = [ask for ask in asks if ask.draft and not ask.again]
            start_here = await self._write_with(made, durable=not may_be_lost)
        again = [ask for ask in asks if ask.again]
        for start in range(0, len(again), _AT_ONCE):
            await self._revive(again[start : start + _AT_ONCE])
        return start_here

    def _add(self, ask: Ask, now: float) -> None:
        task = ask.draft.id if ask.draft else None
        ask.task, ask.is_own = task, True
        if ask.due is not None:
            ask.seconds = max(0.0, ask.due - now)
        ask.position = self._recording.add(Asked(ask.key, ask.kind, task, ask.seconds))  # type: ignore[arg-type]
        if ask.seconds is not None and ask.due is None:
            ask.due = now + ask.seconds

    def _may_be_lost(self, ask: Ask) -> bool:
        """Whether a child may begin before it is on the disk. If the database crashes then, whoever
        goes on from what is left asks for the same one once more; unless something is written with
        it that would be another the next time. Nor the first that an attempt writes: it gets on by
        that, should its worker die (decision 26)."""
        recording = self._recording
        if not ask.may_be_lost or ask.again or recording.decides or recording.stays:
            return False
        return recording.has_written

    async def make_sure(self, asks: Sequence[Ask]) -> None:
        """Whether their tasks are ours: we may have crashed before we could note whose they are."""
        begun = [self._history.begun[ask.key] for ask in asks]
        drafts = [
            msgspec.structs.replace(ask.draft, id=one.asked.task)
            for ask, one in zip(asks, begun, strict=True)
            if ask.draft and one.asked.task
        ]
        ids = await self._recording.ask_again([(one.position, one.asked) for one in begun], drafts)
        for ask in asks:
            ask.unsure = False
        async with self._recording.turn:
            await self._belong(asks, ids)

    async def _belong(self, asks: Sequence[Ask], ids: Sequence[UUID]) -> None:
        """Whose tasks they are. Who would wait for what waits for it is told so."""
        others = [(ask, id) for ask, id in zip(asks, ids, strict=True) if id != ask.task]
        if not others:
            return
        us, tasks = self._host.context.task_id, sorted({task for _, task in others})
        in_vain = await surely(lambda: self._store.in_vain(us, tasks))
        circle: list[tuple[Ask, One]] = []
        for ask, task in others:
            if in_vain.get(task) == "circle":
                circle.append(self._fails(ask, _in_a_circle(ask, task, self._host)))
                continue
            ask.task, ask.is_own = task, False
            self._arrivals.look_now()  # it may have ended long ago
            self._recording.add(Holder(ask.position or 0, task))
        if circle:
            place = self._recording.add(Came([one for _, one in circle]), decides=True)
            await self._recording.write_with(())
            self.told.append(Told(place, circle))

    async def _write_with(self, made: Sequence[Ask], *, durable: bool) -> bool:
        """Write what is asked for, and accept the children; whether some start here. One whose
        idempotency key belongs to other work has failed by that: it is written so, with the
        others."""
        told: list[Told] = []
        while True:
            try:
                drafts = [ask.draft for ask in made if ask.draft]
                offer = self._host.offer(drafts, durable=durable) if drafts else None
                taking = offer and offer.taking
                with offer or nullcontext(), tracing.sending(drafts) as traced:
                    written = await self._recording.write_with(traced, taking=taking)
            except KeyConflict as conflict:
                known = conflict.refused
                refused = [ask for ask in made if ask.draft and ask.draft.id in known]
                if not refused:
                    raise
                ones = [self._refuse(a, known[a.draft.id]) for a in refused if a.draft]
                place = self._recording.add(Came([one for _, one in ones]), decides=True)
                told.append(Told(place, ones))
                made = [ask for ask in made if ask not in refused]
                continue
            self.told += told
            if drafts and written:
                self._host.made(traced, written, offer)
                await self._belong(made, written.children)
            return bool(drafts and written and written.leased)

    def _refuse(self, ask: Ask, conflict: KeyConflict) -> tuple[Ask, One]:
        """There is no such child, and never was."""
        assert ask.position is not None
        self._recording.replace(ask.position, Asked(ask.key, "child"))
        return self._fails(ask, conflict)

    def _fails(self, ask: Ask, error: Exception) -> tuple[Ask, One]:
        assert ask.position is not None
        ask.task = None
        return ask, One(ask.position, "failed", failure=failure_of(error))

    # ── those that were given up, or failed in a former life ─────────────────────────────────

    async def _revive(self, asks: Sequence[Ask]) -> None:
        """What was cancelled with the function, or failed in its former life, gets a new life; what
        is done is done. First the new life, then the note: a crash in between gives it once more,
        which changes nothing for those who live."""
        await self._recording.check()
        tasks = {ask: ask.task for ask in asks if ask.task}
        ids = sorted(set(tasks.values()))
        before = found = await surely(lambda: self._store.get_many(ids))
        over = {task for ask, task in tasks.items() if _needs_life(ask, found.get(task))}
        if over:
            await surely(lambda: self._store.retry(sorted(over)))
            found = await surely(lambda: self._store.get_many(ids))
        for ask, task in tasks.items():
            self._judge(ask, before.get(task), found.get(task))
        dying = self._arrivals.dying
        if noted := [a.position for a in asks if a.position is not None and a not in dying]:
            self._recording.add(Again(noted))
            await self._recording.flush()
        self._arrivals.look_now()

    def _judge(self, ask: Ask, before: Task | None, known: Task | None) -> None:
        """One that was revived may have failed again by now: that is its answer."""
        ask.again = False
        is_same = before and known and known.finished_at == before.finished_at
        if known is None or (is_same and _needs_life(ask, known)):
            # Forgotten; or its key belongs to a younger task by now, and leads there.
            ask.ask_anew()
        elif known.cancel_requested and known.status not in _ENDED:
            # It was told to end when we gave it up: it gets a new life once it has.
            self._arrivals.dying.add(ask)


def _in_a_circle(ask: Ask, task: UUID, host: Host) -> NotPossible:
    itself = task == host.context.task_id
    whom = "itself" if itself else f"task {task}, which waits for it"
    return NotPossible(
        f"this function would wait for {whom}: a call of {ask.key.name} with these arguments (or "
        "this key) is that task, since one key is one run; give what it calls another key"
    )


def _needs_life(ask: Ask, known: Task | None) -> bool:
    if known is None:
        return False
    return known.status is TaskStatus.CANCELLED or (
        ask.reborn and known.status is TaskStatus.FAILED
    )
