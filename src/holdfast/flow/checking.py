"""Whether today's code still fits what is recorded of a run: a replay that changes nothing."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Journal, Step, Written
from holdfast.context import Context, Effect, running
from holdfast.errors import InvalidInput, Parked
from holdfast.executors.coroutine import CoroutineExecutor
from holdfast.executors.thread import ThreadExecutor
from holdfast.flow.asking import Asking
from holdfast.flow.asks import Ask
from holdfast.flow.branches import watching
from holdfast.flow.entries import Recorded
from holdfast.flow.parking import disagreement
from holdfast.function import Function
from holdfast.ids import new_grant
from holdfast.tasks.lane import Lane
from holdfast.tasks.lifecycle import Anew, Waiting
from holdfast.tasks.task import Claimed, Draft, Lease

__all__ = ["Check", "Run", "check"]


class _Entry(msgspec.Struct, frozen=True):
    kind: str
    name: str
    value: msgspec.Raw
    position: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a durable function, as a file holds it."""

    task: UUID
    type: str
    version: str = ""
    arguments: msgspec.Raw
    journal: list[_Entry]

    @classmethod
    def of(cls, task: UUID, type: str, version: str, payload: bytes, journal: Journal) -> "Run":
        entries = [
            _Entry(s.kind, s.name, msgspec.Raw(s.value or b"null"), s.position)
            for s in journal.steps
        ]
        raw = msgspec.Raw(payload)
        return cls(task=task, type=type, version=version, arguments=raw, journal=entries)

    @classmethod
    def read(cls, data: bytes) -> "Run":
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"this is no run: {error}; `holdfast flows export ID` writes one"
            ) from None

    def written(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @property
    def steps(self) -> list[Step]:
        return [
            Step(position=e.position, kind=e.kind, name=e.name, value=bytes(e.value))
            for e in self.journal
        ]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay came to: `fits`, and the end of the function or what it asks for next."""

    fits: bool
    told: str


class _Replay(Asking):
    """Asks for nothing that is not recorded."""

    async def _begin(self, new: Sequence[Ask]) -> None:
        self.told("it goes on with " + ", ".join(str(ask.key) for ask in new[:5]))

    async def _wait(self) -> Waiting | None:
        waits = [str(ask.key) for ask in self.open.values()]
        if waits and (left := self._history.unasked(self._asked)):
            raise disagreement(left, [])
        if waits:
            self.told("it waits for " + ", ".join(waits[:5]))
        else:
            self._stir.clear()
            await self._stir.wait()
        return None

    async def run_here(self, name: str, digest: str, run: Any) -> tuple[Recorded, Ask | None]:
        self.told(f"it goes on with {name}")
        await self.loop.create_future()
        raise AssertionError("unreachable")

    async def _write_grounds(self) -> None: ...

    async def look(self, name: str, digest: str) -> Effect:
        effect = await super().look(name, digest)
        if effect.value is None and not effect.done:
            self.told(f"it goes on with {name}")
            await self.loop.create_future()
        return effect

    async def _restart(self, payload: bytes) -> None:
        self.told("it begins anew")
        await self.loop.create_future()

    def give_up(self, ask: Ask) -> None:
        self.open.pop(ask.key, None)
        self.miss(ask)
        self.stir()

    def miss(self, ask: Ask) -> None:
        self._gone.add(ask.key)

    async def _make_sure(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            ask.unsure = False

    def told(self, what: str) -> None:
        self._host.stop_for(Waiting(reason=what))
        self.closed = True


class _Dry:
    """An attempt that is none: it holds no lease and writes nothing."""

    def __init__(self, function: Function[..., Any, Any], run: Run) -> None:
        self.function = function
        lease = Lease(run.task, new_grant(), 2)
        claimed = Claimed(
            lease=lease,
            lane=Lane(queue="default", type=run.type, version=run.version),
            priority=0,
            tries=1,
            payload=bytes(run.arguments),
        )
        keeper: Any = self
        self.context = Context(claimed, keeper)
        self.reason: Waiting | Anew | BaseException | None = None
        self.stopped = asyncio.Event()
        store: Any = None
        journal = Journal(steps=run.steps, ages=[0.0] * len(run.journal))
        self.flow = _Replay(store, self, journal)

    def stop_for(self, reason: Waiting | Anew | BaseException) -> None:
        self.reason = self.reason or reason
        self.stopped.set()

    has_asked = may_ask = True

    def offer(self, drafts: Sequence[Draft], *, durable: bool) -> None: ...

    def made(self, drafts: Sequence[Draft], written: Written, offer: Any) -> None: ...

    def rest(self) -> None: ...

    async def resume(self) -> None: ...

    async def in_thread(self, work: Any, stopped: Any) -> tuple[Any, BaseException | None]:
        raise AssertionError("a check runs no steps")


async def check(function: Function[..., Any, Any], run: Run, *, seconds: float = 60.0) -> Check:
    """Replay a run on this function's code. Code outside of steps runs; steps do not."""
    executor = CoroutineExecutor() if function.is_async else ThreadExecutor()
    with watching():
        dry = _Dry(function, run)
        token = running.set(dry.context)
        replay = asyncio.create_task(executor.run(function, dry.context))
        running.reset(token)
        stopped = asyncio.create_task(dry.stopped.wait())
        done, _ = await asyncio.wait(
            {replay, stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        ended = replay in done
        if not ended:
            replay.cancel()
        stopped.cancel()
        await asyncio.wait({replay, stopped})
        await dry.flow.close()
        await executor.close()
        return _judged(dry, replay, ended, seconds)


def _judged(dry: _Dry, replay: "asyncio.Task[bytes]", ended: bool, seconds: float) -> Check:
    reason = dry.reason
    if isinstance(reason, Waiting):
        parked = reason.reason.startswith("parked: ")
        return Check(fits=not parked, told=reason.reason.removeprefix("parked: "))
    if isinstance(reason, BaseException):
        return Check(fits=False, told=f"the replay could not go on: {reason}")
    if not ended:
        return Check(fits=False, told=f"the replay did not come to its end within {seconds:g} s")
    error = replay.exception()
    how = f"ends with {type(error).__name__}: {error}" if error else "comes to its end"
    try:
        dry.flow.check_finished()
    except Parked as parked:
        return Check(fits=False, told=f"it {how}, and {parked}" if error else str(parked))
    return Check(fits=True, told=f"it {how}")
