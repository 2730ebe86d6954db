"""Steps, signals and wakes of durable functions: one row per step, guarded by the lease."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from holdfast.answers import (
    Ending,
    InVain,
    Journal,
    JournalPage,
    News,
    Orphans,
    Progress,
    Signal,
    Step,
    Taking,
    Written,
)
from holdfast.errors import InvalidInput, JournalConflict, LeaseLost, PayloadRefused, UnknownTask
from holdfast.stores.base import check_limit, failure_of
from holdfast.stores.driver import Driver, DuplicateTask
from holdfast.stores.prepared import accepted, by_itself, columns
from holdfast.stores.producing import Producing
from holdfast.stores.sharing import Together
from holdfast.stores.working import seconds_of
from holdfast.tasks.names import check_key
from holdfast.tasks.payload import MAX_SIZE, check_payload
from holdfast.tasks.task import Draft, Lease, TaskStatus

__all__ = ["Flows"]

_MOST = MAX_SIZE + 128 * 1024  # bytes: a result, with names, and how a failure came about
_PAGE = 250  # children, and signals, of one look: PostgreSQL sends less than a gigabyte at once
_LARGE = 4 * 1024 * 1024  # bytes of values in a page of a journal, about
_Steps = tuple[Lease, Sequence[Step]]
_Verdict = tuple[bool, Sequence[int] | None]
_HELD: _Verdict = (True, None)
_NOBODY: dict[str, Any] = dict.fromkeys(columns([], []))
_NOTHING = Written(children=[], leased=frozenset())


class Flows(Producing):
    """Keeps `holdfast.store.Flows`."""

    def __init__(self, driver: Driver, *, share_commits: bool = True) -> None:
        super().__init__(driver, share_commits=share_commits)
        self._journalings: WeakKeyDictionary[
            asyncio.AbstractEventLoop, Together[_Steps, _Verdict]
        ] = WeakKeyDictionary()
        self._lately: tuple[asyncio.AbstractEventLoop, Together[_Steps, _Verdict]] | None = None

    async def record(
        self,
        lease: Lease,
        steps: Sequence[Step],
        *,
        consumed: Sequence[UUID] = (),
        seen: Sequence[int] = (),
        children: Sequence[Draft] = (),
        taking: Taking | None = None,
    ) -> Written:
        _check(steps)
        if children and not steps:
            raise InvalidInput("children are recorded together with the steps that ask for them")
        if self._share and steps and not (consumed or seen or children):
            held, conflicts = await self._journaling().ask((lease, steps))
            if not held or conflicts:
                await self._judge(lease, held, conflicts)
            return _NOTHING
        lanes = await self._lanes_of(children, None) if children else []
        if taking and taking.most and len(children) == 1 and not (consumed or seen):
            (child,), (lane,) = children, lanes
            if await self._record_child(lease, steps, child, lane, taking):
                return Written(children=[child.id], leased=frozenset({child.id}))
        held, conflicts, *taken = await self._record(
            lease,
            steps,
            consumed=list(consumed) or None,
            seen=list(seen) or None,
            asked=columns(children, lanes) if children else _NOBODY,
            taking=taking,
        )
        await self._judge(lease, held, conflicts)
        if not children:
            return _NOTHING
        *taken, leased = taken
        ids = accepted(self._driver, children, [taken]).all_or_none()
        return Written(children=ids, leased=frozenset(self._uuids(leased or ())))

    async def _record_child(
        self, lease: Lease, steps: Sequence[Step], child: Draft, lane: int, taking: Taking
    ) -> bool:
        """One child that is taken at once: so it goes in a chain of them."""
        own = by_itself(child, lane) if child.parent == lease.task else None
        if own is None or len({step.position for step in steps}) < len(steps):
            return False
        try:
            rows = await self._call(
                "record_child",
                id=lease.task,
                grant=lease.grant,
                **_columns(steps),
                **own,
                worker=taking.worker,
                taking=taking.grant,
                lease=seconds_of("lease", taking.lease),
                durable=taking.durable,
            )
        except DuplicateTask:  # asked again while the first was being written: now it is
            return False
        return bool(rows[0][0])

    async def _record(
        self,
        lease: Lease,
        steps: Sequence[Step],
        *,
        consumed: list[UUID] | None = None,
        seen: list[int] | None = None,
        asked: dict[str, Any] = _NOBODY,
        taking: Taking | None = None,
    ) -> Sequence[Any]:
        """The verb that writes everything, and tells what was refused."""
        parameters = {
            "id": lease.task,
            "grant": lease.grant,
            **_columns(steps),
            "consumed": consumed,
            "seen": seen,
            **asked,
            "worker": taking and taking.worker,
            "taking": taking and taking.grant,
            "lease": taking and seconds_of("lease", taking.lease),
            "most": taking.most if taking else 0,
        }
        try:
            rows = await self._call("record", **parameters)
        except DuplicateTask:  # asked again while the first was being written: now it is
            rows = await self._call("record", **parameters)
        answer: Sequence[Any] = rows[0]
        return answer

    async def _judge(self, lease: Lease, held: bool, conflicts: Sequence[int] | None) -> None:
        if not held:
            await self._refuse("record", [lease])
            raise LeaseLost("record", lease.task)
        if conflicts:
            raise JournalConflict(lease.task, conflicts)

    def _journaling(self) -> Together[_Steps, _Verdict]:
        """The functions of this event loop: those that record at once share one commit."""
        loop = asyncio.get_running_loop()
        lately = self._lately
        if lately is not None and lately[0] is loop:
            return lately[1]
        found = self._journalings.get(loop)
        if found is None:
            found = self._journalings[loop] = Together(self._record_steps, weigh=_weight)
        self._lately = loop, found
        return found

    async def _record_steps(self, asked: Sequence[_Steps]) -> Sequence[_Verdict]:
        if await self._record_new(asked):
            return [_HELD] * len(asked)
        # Beside each other, and to the end also where one of them fails.
        each = [self._record(lease, steps) for lease, steps in asked]
        answers = await asyncio.gather(*each, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [(held, conflicts) for held, conflicts, *_ in answers]  # type: ignore[misc]

    async def _record_new(self, asked: Sequence[_Steps]) -> bool:
        """Written, where every lease holds and all steps are new, as nearly always."""
        if len(asked) == 1 and len(asked[0][1]) == 1:
            return await self._record_step(*asked[0])
        # Of one task an old and a new grant may record at once: they never go together.
        if len({lease.task for lease, _ in asked}) < len(asked):
            return False
        leases = [lease for lease, all in asked for _ in all]
        written: bool = await self._value(
            "record_steps",
            ids=[lease.task for lease in leases],
            grants=[lease.grant for lease in leases],
            **_columns([step for _, all in asked for step in all]),
            apart=len(leases) == len(asked),
        )
        return written

    async def _record_step(self, lease: Lease, steps: Sequence[Step]) -> bool:
        """One new step, which is what nearly all of them are."""
        (step,) = steps
        rows = await self._call(
            "record_step",
            id=lease.task,
            grant=lease.grant,
            position=step.position,
            kind=step.kind,
            name=step.name,
            step_value=step.value,
        )
        return bool(rows and rows[0][0])

    async def news(
        self, task: UUID, children: Sequence[UUID], *, signals: Sequence[str] = ()
    ) -> News:
        news = await self._news(task, children[:_PAGE], signals)
        for start in range(_PAGE, len(children), _PAGE):
            # Of a later moment than the wakes: all that those tell of has come by now.
            more = await self._news(task, children[start : start + _PAGE], ())
            news.endings.update(more.endings)
        return news

    async def _news(self, task: UUID, children: Sequence[UUID], names: Sequence[str]) -> News:
        ((wakes, *rest),) = await self._call(
            "news", id=task, children=list(children), names=list(names), most=_PAGE
        )
        signals, ended = rest[:3], rest[3:]
        return News(
            wakes=list(wakes or ()),
            signals=[
                Signal(id=self._driver.uuid(id), name=name, payload=payload)
                for id, name, payload in _rows(signals)
            ],
            endings={
                self._driver.uuid(id): Ending(
                    status=TaskStatus(state),
                    result=result,
                    failure=failure_of(type, error, detail),
                )
                for id, state, result, type, error, detail in _rows(ended)
            },
        )

    async def journal(self, task: UUID) -> Journal:
        rows = await self._call("steps", id=task)
        return Journal(
            steps=[
                Step(position=position, kind=kind, name=name, value=value)
                for position, kind, name, value, _, _ in rows
            ],
            ages=[row[4] for row in rows],
            since=rows[0][5] if rows else None,
        )

    async def journal_page(
        self, task: UUID, *, after: int = -1, limit: int = 1000, families: bool = False
    ) -> JournalPage:
        check_limit(limit)
        rows = await self._call(
            "steps.page", id=task, after=after, most=limit, families=families, bytes=_LARGE
        )
        steps = [
            Step(position=p, kind=kind, name=name, value=value) for p, kind, name, value in rows
        ]
        is_cut = len(steps) == limit or sum(len(s.value or b"") for s in steps) >= _LARGE
        return JournalPage(steps=steps, next_after=steps[-1].position if is_cut else None)

    async def payload(self, task: UUID) -> bytes:
        found: bytes | None = await self._value("payload", id=task)
        if found is None:
            raise UnknownTask([task])
        return found

    async def saved(self, task: UUID) -> Progress | None:
        for percent, message, saved, at in await self._call("saved", id=task):
            updated_at = self._driver.instant(at)
            assert updated_at is not None
            return Progress(percent=percent, message=message, saved=saved, updated_at=updated_at)
        return None

    async def send_signal(self, task: UUID, id: UUID, name: str, payload: bytes) -> bool:
        check_key("signal name", name)
        check_payload(payload)
        sent: bool = await self._value(
            "send_signal", signal=id, id=task, name=name, payload=payload
        )
        if sent:
            await self.wake_up([task])
        return sent

    async def wake_up(self, tasks: Sequence[UUID]) -> int:
        moved: int = await self._value("wake_up", ids=sorted(tasks))
        return moved

    async def in_vain(self, waiter: UUID, tasks: Sequence[UUID]) -> dict[UUID, InVain]:
        rows = await self._call("in_vain", id=waiter, ids=list(tasks))
        return {self._driver.uuid(id): "forgotten" if gone else "circle" for id, gone in rows}

    async def orphans(
        self, after: UUID | None = None, *, quiet: timedelta, batch: int = 500
    ) -> Orphans:
        rows = await self._call(
            "orphans", after=after or UUID(int=0), quiet=quiet.total_seconds(), batch=batch
        )
        found = [(self._driver.uuid(id), orphaned) for id, orphaned in rows]
        return Orphans(
            tasks=[id for id, orphaned in found if orphaned],
            last=found[-1][0] if len(found) == batch else None,
        )


def _columns(steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "positions": [step.position for step in steps],
        "kinds": [step.kind for step in steps],
        "names": [step.name for step in steps],
        "step_values": [step.value for step in steps],
    }


def _rows(columns: Sequence[Sequence[Any] | None]) -> Iterable[tuple[Any, ...]]:
    return zip(*(column or () for column in columns), strict=True)


def _weight(asked: _Steps) -> int:
    return sum([len(step.value or b"") for step in asked[1]])


def _check(steps: Sequence[Step]) -> None:
    for step in steps:
        check_key("step name", step.name)
        check_key("step kind", step.kind)
        # A value holds what is checked already, with a little around it: only its size counts.
        if step.value and len(step.value) > _MOST:
            raise PayloadRefused(
                f"step {step.name!r} has a value of {len(step.value):,} bytes, over the limit of "
                f"{_MOST:,}; store the data elsewhere and record its address"
            )
    if len(steps) == 1:
        return
    taken: dict[int, Step] = {}
    for step in steps:
        if taken.setdefault(step.position, step) != step:
            raise InvalidInput(
                f"two different steps are to be recorded at position {step.position}"
            )
