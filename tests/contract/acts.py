"""What the contract's tests do, said shortly."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from holdfast.answers import ClaimAnswer
from holdfast.ids import new_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lane import Serving
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Claimed, Draft, Failure, TaskStatus

__all__ = [
    "BOOM",
    "CANCELLED",
    "DONE",
    "EVERYTHING",
    "FAILED",
    "HANDED_BACK",
    "MINUTE",
    "OTHER",
    "TYPE",
    "WORKER",
    "anew",
    "ask",
    "claim",
    "claim_one",
    "draft",
    "finish",
    "ids_of",
    "lanes_of",
    "put",
    "put_one",
    "retry",
    "seconds",
    "snoozed",
    "status_of",
    "waiting",
]

TYPE = "shop.orders:charge"
WORKER, OTHER = 11, 22
MINUTE = timedelta(minutes=1)
EVERYTHING = Serving(capabilities=frozenset({"gpu", "eu"}))

BOOM = Failure(type="Boom", message="it broke", detail=b'{"traceback": []}')
DONE = Settlement(verdict=Verdict.DONE, result=b'"paid"')
FAILED = Settlement(verdict=Verdict.FAILED, failure=BOOM)
CANCELLED = Settlement(verdict=Verdict.CANCELLED)
HANDED_BACK = Settlement(verdict=Verdict.HANDED_BACK, refund=True)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def retry(after: float = 0) -> Settlement:
    return Settlement(verdict=Verdict.RETRY, failure=BOOM, delay=seconds(after))


def snoozed(after: float) -> Settlement:
    return Settlement(verdict=Verdict.SNOOZED, delay=seconds(after), refund=True)


def anew(payload: bytes) -> Settlement:
    """It goes on as a new run of the same task."""
    return Settlement(verdict=Verdict.SNOOZED, delay=seconds(0), refund=True, payload=payload)


def waiting(
    timer: float | None = None,
    *,
    wakes: int = 1,
    watched: Sequence[UUID] = (),
    seen: Sequence[int] = (),
    reason: str = "child",
) -> Settlement:
    return Settlement(
        verdict=Verdict.WAITING,
        delay=None if timer is None else seconds(timer),
        refund=True,
        wakes=wakes,
        watched=tuple(watched),
        seen=tuple(seen),
        reason=reason,
    )


def draft(type: str = TYPE, **fields: Any) -> Draft:
    return Draft(id=new_id(), type=type, **fields)


async def put(store: SqlStore, count: int, type: str = TYPE, **fields: Any) -> list[UUID]:
    """Bring in some equal tasks."""
    return await store.enqueue([draft(type, **fields) for _ in range(count)])


async def put_one(store: SqlStore, type: str = TYPE, **fields: Any) -> UUID:
    (id,) = await put(store, 1, type, **fields)
    return id


async def lanes_of(store: SqlStore, serving: Serving = EVERYTHING) -> list[int]:
    """The lanes that a worker serves."""
    lanes = (await store.lanes()).lanes
    return [id for id, lane in lanes.items() if serving.serves(lane)]


async def ask(
    store: SqlStore,
    want: int = 100,
    *,
    worker: int = WORKER,
    lease: timedelta = MINUTE,
    serving: Serving = EVERYTHING,
    **rest: Any,
) -> ClaimAnswer:
    """A worker's claim, with all that it answers."""
    lanes = rest.pop("lanes", None) or await lanes_of(store, serving)
    return await store.claim(worker=worker, lanes=lanes, want=want, lease=lease, **rest)


async def claim(store: SqlStore, want: int = 100, **rest: Any) -> list[Claimed]:
    return (await ask(store, want, **rest)).tasks


async def claim_one(store: SqlStore, **rest: Any) -> Claimed:
    (claimed,) = await claim(store, 1, **rest)
    return claimed


async def finish(
    store: SqlStore, claimed: Sequence[Claimed] | Claimed, settlement: Settlement = DONE
) -> None:
    """Settle all of them the same way, and be heard."""
    held = [claimed] if isinstance(claimed, Claimed) else claimed
    assert await store.settle([(c.lease, settlement) for c in held]) == frozenset()


async def status_of(store: SqlStore, id: UUID) -> TaskStatus:
    return (await store.get(id)).status


def ids_of(claimed: Sequence[Claimed]) -> list[UUID]:
    return [c.lease.task for c in claimed]
