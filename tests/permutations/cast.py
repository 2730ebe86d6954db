"""The tasks of a scene by name, and the verbs that may be played on them."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from holdfast.answers import Step, Taking
from holdfast.errors import LeaseLost
from holdfast.ids import new_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.edit import Edit
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Draft, Failure, Lease
from tests.permutations.world import LEASE, World

SOON = timedelta(seconds=10)
BOOM = Failure(type="Boom", message="boom")
DONE = Settlement(verdict=Verdict.DONE, result=b'"done"')
FAILED = Settlement(verdict=Verdict.FAILED, failure=BOOM)
RETRY = Settlement(verdict=Verdict.RETRY, failure=BOOM, delay=SOON)
HANDED_BACK = Settlement(verdict=Verdict.HANDED_BACK, refund=True)
NAPPING = Settlement(verdict=Verdict.WAITING, delay=SOON, refund=True, reason="timer")
WAITING = Settlement(verdict=Verdict.WAITING, refund=True, reason="child")
WAITING_FOR_TWO = Settlement(verdict=Verdict.WAITING, refund=True, wakes=2, reason="children")


class Cast:
    """Who is on stage."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ids: dict[str, UUID] = {}
        self.leases: dict[str, Lease] = {}
        self.lanes: list[int] = []
        self.gate: int | None = None
        self.children: defaultdict[str, UUID] = defaultdict(new_id)  # made on stage, by parent

    def reversed(self) -> Self:
        """The same, named in the other order: who locks as asked would lock in a circle."""
        other = type(self)(self.world)
        other.ids = dict(reversed(self.ids.items()))
        other.leases = dict(reversed(self.leases.items()))
        other.lanes, other.gate = self.lanes[::-1], self.gate
        other.children = self.children
        return other

    # ── setting the scene ────────────────────────────────────────────────────────────────────

    async def add(self, name: str, type: str = "work", max_tries: int = 2, **asked: Any) -> None:
        draft = Draft(id=new_id(), type=type, queue="q", max_tries=max_tries, **asked)
        self.ids[name] = draft.id
        await self.world.store.enqueue([draft])
        self.lanes = sorted((await self.world.store.lanes()).lanes)

    async def hold(self, *names: str, worker: int = 1, lease: timedelta = LEASE) -> None:
        """Claim these; they must be first in line."""
        answer = await self.world.store.claim(
            worker=worker, lanes=self.lanes, want=len(names), lease=lease
        )
        held = {task.lease.task: task.lease for task in answer.tasks}
        self.leases |= {name: held[self.ids[name]] for name in names}

    async def settle(self, name: str, settlement: Settlement) -> None:
        assert not await self.world.store.settle([(self.leases.pop(name), settlement)])


Verb = Callable[[SqlStore, Cast], Awaitable[Any]]


def settles(settlement: Settlement, *names: str) -> Verb:
    """The holder of these (or of all) settles them so."""

    async def play(store: SqlStore, cast: Cast) -> Any:
        leases = [lease for name, lease in cast.leases.items() if not names or name in names]
        return dict.fromkeys(leases, settlement), await store.settle(
            [(lease, settlement) for lease in leases]
        )

    return play


def claims(
    *, want: int = 5, wait: bool = False, lanes: Callable[[Cast], Sequence[int]] | None = None
) -> Verb:
    return lambda store, cast: store.claim(
        worker=2,
        lanes=lanes(cast) if lanes else cast.lanes,
        want=want,
        lease=LEASE,
        after=cast.gate if wait else None,
    )


def takes_child(name: str, type: str = "free") -> Verb:
    """The holder asks for a child and takes it at once: the same one whenever it is asked for, as
    after a lost answer."""
    ask = Step(position=0, kind="ask.child", name=type, value=b"{}")

    async def play(store: SqlStore, cast: Cast) -> Any:
        lease, id = cast.leases[name], cast.children[name]
        child = Draft(id=id, type=type, queue="q", max_tries=2, parent=lease.task)
        offer = Taking(worker=1, grant=id, lease=LEASE, most=1)
        try:
            return (await store.record(lease, [ask], children=[child], taking=offer)).children
        except LeaseLost as refused:
            return refused

    return play


def cancels(*names: str) -> Verb:
    return lambda store, cast: store.cancel(_some(cast, names))


def edits(name: str, edit: Edit) -> Verb:
    return lambda store, cast: store.edit(cast.ids[name], edit)


def signals(name: str) -> Verb:
    return lambda store, cast: store.send_signal(cast.ids[name], new_id(), "hello", b"1")


def limits(limit: Limit, type: str = "work") -> Verb:
    return lambda store, cast: store.limit("type", type, limit)


def enqueues(payload: bytes = b"null", **asked: Any) -> Verb:
    def play(store: SqlStore, _: Cast) -> Any:
        return store.enqueue([Draft(id=new_id(), queue="q", payload=payload, **asked)])

    return play


def wakes_up(store: SqlStore, cast: Cast) -> Awaitable[Any]:
    return store.wake_up(list(cast.ids.values()))


def renews(store: SqlStore, cast: Cast) -> Awaitable[Any]:
    return store.renew(list(cast.leases.values()), LEASE)


def replays(store: SqlStore, cast: Cast) -> Awaitable[Any]:
    return store.retry(list(cast.ids.values()))


def discards(store: SqlStore, cast: Cast) -> Awaitable[Any]:
    return store.discard(list(cast.ids.values()))


def cleans_up(store: SqlStore, _: Cast) -> Awaitable[Any]:
    return store.cleanup(timedelta(0), dead_letters=timedelta(0))


def pauses(store: SqlStore, _: Cast) -> Awaitable[Any]:
    return store.pause("q")


def recovers(store: SqlStore, _: Cast) -> Awaitable[Any]:
    return store.recover()


def promotes(store: SqlStore, _: Cast) -> Awaitable[Any]:
    return store.promote()


def expires(store: SqlStore, _: Cast) -> Awaitable[Any]:
    return store.expire()


def sweeps(store: SqlStore, _: Cast) -> Awaitable[Any]:
    return store.sweep_wakes()


def _some(cast: Cast, names: Sequence[str]) -> list[UUID]:
    return [id for name, id in cast.ids.items() if not names or name in names]
