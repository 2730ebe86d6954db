"""Workers without the database: they claim, renew and settle here under the same guarantees. Their
request's id is the grant; the token of a lease is the permission."""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

import msgspec

from holdfast.answers import Lanes
from holdfast.app import Holdfast
from holdfast.client import Client
from holdfast.desk.caller import Caller
from holdfast.errors import LeaseLost, Sealed, UnknownTask, UnknownType
from holdfast.http.sweeping import Sweeping
from holdfast.http.tokens import HeldLease, RemoteWorker
from holdfast.ids import chance
from holdfast.notifier import Hint
from holdfast.redaction import Redaction, scrub
from holdfast.sealing import is_sealed
from holdfast.store import Store
from holdfast.tasks.lifecycle import (
    Cancelled,
    Expired,
    HandedBack,
    Outcome,
    Settlement,
    Verdict,
    settle,
)
from holdfast.tasks.task import Claimed, Task

__all__ = ["Granted", "Granting"]

logger = logging.getLogger("holdfast.http")
_BEAT = 10_000_000  # microseconds between two signs of life that are written
_QUICK, _SLOW = 0.05, 0.5  # seconds between looks for work
_MOST_KNOWN = 10_000
_AGAIN = 4  # claims for one look
_ALL_HIDDEN = "[hidden: the arguments are sealed, and the API has no key to them]"


class Granted(msgspec.Struct, frozen=True):
    """What a claim brought. `drain`: claim no more, finish, and leave."""

    tasks: list[Claimed]
    drain: bool


class _Known(msgspec.Struct):
    """A worker, as of its last beat. `acquired`: tasks that it got here since; `heard`: when it was
    last heard of by another way."""

    at: int
    drain: bool
    acquired: int = 0
    heard: int = 0


class Granting:
    def __init__(
        self, app: Holdfast, client: Callable[[], Awaitable[Client]], sweeping: Sweeping
    ) -> None:
        self._app, self._client, self._sweeping = app, client, sweeping
        self._lanes: Lanes | None = None
        self._turn = itertools.count(1)
        self._served: dict[str, int] = {}  # tenants in turn: who was served last comes last
        self._known: OrderedDict[int, _Known] = OrderedDict()

    async def register(self, worker: RemoteWorker, caller: Caller) -> None:
        store = await self._store()
        await self._note(store, "worker.register", worker, caller)
        await store.register(worker.record(status="starting"))

    async def sign_off(self, worker: RemoteWorker, caller: Caller) -> None:
        store, known = await self._store(), self._known.pop(worker.id, None)
        await self._note(store, "worker.sign_off", worker, caller)
        if known and known.acquired:
            await store.beat(worker.record(), acquired=known.acquired)
        await store.sign_off(worker.id)

    async def _note(self, store: Store, verb: str, worker: RemoteWorker, caller: Caller) -> None:
        """With what each attempt says of its worker, the audit knows which key had a task."""
        detail = {"id": str(worker.id)}
        await store.note(caller.name, verb, worker.name, tenant=caller.tenant, detail=detail)

    # ── claim ────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self,
        worker: RemoteWorker,
        caller: Caller,
        *,
        request: UUID,
        want: int,
        active: int,
        lease: timedelta,
        wait: float,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> Granted:
        """What this request took before, where its answer was lost; else due tasks, or none."""
        store, grant = await self._store(), _grant(worker, request)
        await self._sweeping.sweep()
        drain = await self._beat(store, worker)
        if held := await store.claimed(worker=worker.id, grant=grant):
            return Granted(held, drain)
        if drain:
            return Granted([], drain)
        want = min(want, worker.slots - active)
        over = asyncio.get_running_loop().time() + wait
        pause = _QUICK
        while True:
            tasks = await self._ask(store, worker, caller, grant, want, lease) if want > 0 else []
            if await is_gone():  # nobody would run them
                for task in tasks:
                    await self.settle(HeldLease.of(task, 0, lease), HandedBack())
                return Granted([], drain)
            left = over - asyncio.get_running_loop().time()
            if tasks or left <= 0:
                self._count(worker, len(tasks))
                return Granted(tasks, drain)
            await asyncio.sleep(min(pause, left))
            await self._sweeping.sweep()
            if drain := await self._beat(store, worker):
                return Granted([], drain)
            pause = min(pause * 1.5, _SLOW)

    async def _ask(
        self,
        store: Store,
        worker: RemoteWorker,
        caller: Caller,
        grant: UUID,
        want: int,
        lease: timedelta,
    ) -> list[Claimed]:
        """Again where lanes were added, or others were taking the same."""
        serving, after, tasks = worker.serving(caller.tenant), None, list[Claimed]()
        for _ in range(_AGAIN):
            known, lanes = self._lanes, self._lanes or await self._look_up(store)
            served = [id for id, lane in lanes.lanes.items() if serving.serves(lane)]
            if not served:
                self._lanes = None
                if known is None:
                    break
                continue
            answer = await store.claim(
                worker=worker.id,
                lanes=served,
                want=want,
                lease=lease,
                grant=grant,
                turns=[self._served.get(lanes.lanes[id].tenant, 0) for id in served],
                after=after,
                durable=True,
            )
            tasks, after = answer.tasks, answer.contended
            if answer.lanes != lanes.change:
                self._lanes = None
            if tasks or (self._lanes is not None and after is None):
                break
        self._served |= {task.lane.tenant: next(self._turn) for task in tasks}
        return [task for task in tasks if not await self._ended(store, task)]

    async def _ended(self, store: Store, task: Claimed) -> bool:
        """What was cancelled, or is past its time, is not started."""
        if not (task.cancel_requested or task.expired):
            return False
        outcome: Outcome = Cancelled() if task.cancel_requested else Expired()
        await self.settle(HeldLease.of(task, 0, timedelta(0)), outcome)
        return True

    async def _look_up(self, store: Store) -> Lanes:
        self._lanes = await store.lanes()
        return self._lanes

    # ── what a lease permits ─────────────────────────────────────────────────────────────────

    async def renew(self, held: HeldLease, seconds: float | None) -> bool:
        """Whether its task was asked to cancel. Raises `LeaseLost`."""
        lease = timedelta(seconds=held.seconds if seconds is None else seconds)
        store = await self._store()
        answer = await store.renew([held.lease], lease)
        if held.task in answer.lost:
            raise LeaseLost("renewal", held.task)
        await self._heard(store, held.worker)
        return held.task in answer.cancel

    async def settle(self, held: HeldLease, outcome: Outcome) -> Settlement:
        """Raises `LeaseLost`; to say it twice is harmless."""
        client, tries = await self._client(), self._app.default_tries
        what = settle(held.facts(tries), outcome, chance())
        refused = await client.store.settle([(held.lease, what)], default_tries=tries)
        if held.task in refused:
            raise LeaseLost("settlement", held.task)
        client.tell([Hint("work", held.queue)])  # it made room, or comes again
        if held.parent and what.verdict.final:
            client.tell([Hint("wake", str(held.parent))])
        if what.verdict.final:  # its function is not known here: perhaps others wait for it, too
            watchers = await client.store.wake_watchers([held.task])
            client.tell(Hint("wake", str(task)) for task in watchers)
        return what

    async def ended(self, held: HeldLease, what: Settlement) -> str:
        """How the attempt stands in the history: what was asked to cancel, or has expired, is not
        tried again, and whoever settles twice hears how it ended the first time."""
        if what.verdict is not Verdict.DONE:
            for attempt in await (await self._store()).attempts(held.task, fence=held.fence):
                if attempt.ended:
                    return attempt.ended
        return what.verdict.value

    async def progress(
        self, held: HeldLease, percent: float, message: str | None, saved: bytes | None
    ) -> None:
        await (await self._store()).progress(held.lease, percent, message, saved)

    async def hiding(self, held: HeldLease) -> Callable[[str], str]:
        """Takes out of a text what stands in those fields of its task's arguments that nobody sees:
        a remote worker was given them, and may repeat them. A worker that opens by itself what is
        sealed here may repeat what this server cannot tell from the rest: then all of it."""
        store = await self._store()
        try:
            task, payload = await store.get(held.task), await store.payload(held.task)
        except Sealed:
            return _all_hidden
        except UnknownTask:
            return lambda text: text
        if is_sealed(payload):
            return _all_hidden
        secrets = Redaction(self._app.config.redact).values(payload, self._places(task))
        return lambda text: scrub(text, secrets)

    def _places(self, task: Task) -> tuple[str, ...] | None:
        try:
            return self._app.functions.find(task.type, task.version).signature.places
        except UnknownType:
            return None

    # ── signs of life ────────────────────────────────────────────────────────────────────────

    async def _beat(self, store: Store, worker: RemoteWorker) -> bool:
        """Answers whether it is to drain, as of the last beat."""
        now = self._app.home.clock.boot()
        known = self._known.setdefault(worker.id, _Known(now - _BEAT, False))
        if now - known.at < _BEAT:
            return known.drain
        self._known.move_to_end(worker.id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        more, known.acquired, known.at = known.acquired, 0, now  # so no other says it, too
        try:
            answer = await store.beat(worker.record(), acquired=more)
        except BaseException:
            known.acquired, known.at = known.acquired + more, now - _BEAT
            raise
        known.drain = answer.drain
        return known.drain

    async def _heard(self, store: Store, worker: int) -> None:
        """All whose slots are taken only renew: they live."""
        now, known = self._app.home.clock.boot(), self._known.get(worker)
        if known is None or now - max(known.at, known.heard) >= _BEAT:
            await store.heard(worker)
            if known:
                known.heard = now

    def _count(self, worker: RemoteWorker, tasks: int) -> None:
        if known := self._known.get(worker.id):
            known.acquired += tasks

    async def _store(self) -> Store:
        return (await self._client()).store


def _all_hidden(text: str) -> str:
    return text and _ALL_HIDDEN


def _grant(worker: RemoteWorker, request: UUID) -> UUID:
    """Two workers that chose the same number never share a grant."""
    return UUID(bytes=sha256(worker.id.to_bytes(8) + request.bytes).digest()[:16])
