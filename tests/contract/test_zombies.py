"""The zombie matrix: whatever a stale holder does changes not one byte, and it hears so.

Every worker-side verb against every way to lose a lease. The task has all that a task can have:
a gate and a key (or neither), a parent, progress, steps, a signal and a wake, so that any stray
write shows. The one thing that a stale lease leaves is a line in the log of refused writes.
"""

from collections.abc import Awaitable, Callable
from itertools import count
from uuid import UUID

import pytest

from holdfast.answers import Renewed, Step, Taking
from holdfast.errors import LeaseLost
from holdfast.ids import new_grant, new_id
from holdfast.records import LogLine
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lane import Serving
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Lease
from tests.contract.acts import (
    CANCELLED,
    DONE,
    FAILED,
    HANDED_BACK,
    MINUTE,
    OTHER,
    WORKER,
    anew,
    claim_one,
    draft,
    finish,
    put_one,
    retry,
    seconds,
    snoozed,
    waiting,
)

VICTIM = "job:victim"
VICTIMS = Serving(types=frozenset({(VICTIM, "")}))


# ── how a lease is lost ──────────────────────────────────────────────────────────────────────


class Scene:
    """A store, its clock, and a task that somebody holds."""

    def __init__(self, store: SqlStore, clock, id: UUID, lease: Lease, parent: UUID) -> None:
        self.store, self.clock, self.id, self.lease = store, clock, id, lease
        self.parent = parent
        self._workers = count(OTHER)

    async def lose(self) -> None:
        """Nobody renews for a while, and somebody looks."""
        await self.clock.advance(61)
        assert [r.lease.task for r in await self.store.recover()] == [self.id]

    async def take(self) -> Lease:
        return (await claim_one(self.store, worker=next(self._workers), serving=VICTIMS)).lease

    async def use_up(self) -> None:
        """Lost until no tries are left: a dead letter. The first had recorded something."""
        await self.lose()
        for _ in range(3):
            await self.take()
            await self.lose()


async def recovered(scene: Scene) -> Lease:
    await scene.lose()
    return scene.lease


async def taken_by_another(scene: Scene) -> Lease:
    await scene.lose()
    await scene.take()
    return scene.lease


async def right_fence_wrong_grant(scene: Scene) -> Lease:
    return Lease(scene.id, new_grant(), scene.lease.fence)


async def right_grant_of_another_task(scene: Scene) -> Lease:
    await put_one(scene.store, "job:bystander")
    held = await claim_one(scene.store)
    return Lease(scene.id, held.lease.grant, scene.lease.fence)


async def done_by_another(scene: Scene) -> Lease:
    await scene.lose()
    await scene.store.settle([(await scene.take(), DONE)])
    return scene.lease


async def put_off_by_another(scene: Scene) -> Lease:
    await scene.lose()
    await scene.store.settle([(await scene.take(), retry(600))])
    return scene.lease


async def waiting_for_another(scene: Scene) -> Lease:
    await scene.lose()
    wakes = (await scene.store.news(scene.id, [])).wakes
    await scene.store.settle([(await scene.take(), waiting(seen=wakes))])
    return scene.lease


async def dead_letter(scene: Scene) -> Lease:
    await scene.use_up()
    return scene.lease


async def cancelled(scene: Scene) -> Lease:
    await scene.lose()
    assert await scene.store.cancel([scene.id]) == {scene.id: "cancelled"}
    return scene.lease


async def cancelled_by_recovery(scene: Scene) -> Lease:
    assert await scene.store.cancel([scene.id]) == {scene.id: "requested"}
    await scene.lose()
    return scene.lease


async def discarded(scene: Scene) -> Lease:
    await scene.use_up()
    await scene.store.cancel([scene.parent])  # a living parent would keep it
    assert await scene.store.discard([scene.id]) == {scene.id}
    return scene.lease


async def forgotten(scene: Scene) -> Lease:
    await done_by_another(scene)
    await scene.store.cancel([scene.parent])
    await scene.clock.advance(100)
    assert await scene.store.cleanup(seconds(50)) == 2
    return scene.lease


async def replayed(scene: Scene) -> Lease:
    await scene.use_up()
    assert await scene.store.retry([scene.id]) == {scene.id}
    return scene.lease


async def replayed_and_taken(scene: Scene) -> Lease:
    await replayed(scene)
    await scene.take()
    return scene.lease


LOST = [
    recovered,
    taken_by_another,
    right_fence_wrong_grant,
    right_grant_of_another_task,
    done_by_another,
    put_off_by_another,
    waiting_for_another,
    dead_letter,
    cancelled,
    cancelled_by_recovery,
    discarded,
    forgotten,
    replayed,
    replayed_and_taken,
]


# ── what a stale holder tries ────────────────────────────────────────────────────────────────

Attempt = Callable[[SqlStore, Lease], Awaitable[str | None]]


def settle(settlement: Settlement) -> Attempt:
    async def attempt(store: SqlStore, lease: Lease) -> str:
        assert await store.settle([(lease, settlement)]) == {lease.task}
        return "settle"

    attempt.__name__ = f"settle_{settlement.verdict.value}"
    return attempt


async def renew(store: SqlStore, lease: Lease) -> str:
    renewed = await store.renew([lease], MINUTE)
    assert renewed == Renewed(frozenset({lease.task}), frozenset())
    return "renew"


async def progress(store: SqlStore, lease: Lease) -> str:
    with pytest.raises(LeaseLost, match="progress"):
        await store.progress(lease, 99, "still here", b'"mine"')
    return "progress"


async def log(store: SqlStore, lease: Lease) -> str:
    line = LogLine(position=2, level="INFO", logger="late", message="still here")
    with pytest.raises(LeaseLost, match="log"):
        await store.log(lease, [line])
    return "log"


async def record(store: SqlStore, lease: Lease) -> str:
    news = await store.news(lease.task, [], signals=["go"])
    with pytest.raises(LeaseLost, match="record"):
        await store.record(
            lease,
            [Step(position=9, name="late", value=b"9")],
            consumed=[signal.id for signal in news.signals],
            seen=news.wakes,
            children=[draft("job:parent", parent=lease.task)],
        )
    return "record"


async def record_one(store: SqlStore, lease: Lease) -> str:
    """One new step by itself, which goes another way than several."""
    with pytest.raises(LeaseLost, match="record"):
        await store.record(lease, [Step(position=3, name="third", value=b"3")])
    return "record"


async def record_and_take(store: SqlStore, lease: Lease) -> str:
    """One child that is taken at once goes another way, too."""
    child = draft("job:parent", parent=lease.task)
    taking = Taking(worker=WORKER, grant=new_grant(), lease=MINUTE, most=1)
    with pytest.raises(LeaseLost, match="record"):
        await store.record(lease, [Step(position=8, name="late")], children=[child], taking=taking)
    return "record"


async def record_again(store: SqlStore, lease: Lease) -> str:
    with pytest.raises(LeaseLost, match="record"):
        await store.record(lease, [Step(position=1, name="first", value=b"1")])
    return "record"


async def claimed(store: SqlStore, lease: Lease) -> None:
    found = await store.claimed(worker=WORKER, grant=lease.grant)
    assert lease.task not in [c.lease.task for c in found]


TRIES: list[Attempt] = [
    *map(settle, [DONE, FAILED, CANCELLED, retry(), snoozed(5), HANDED_BACK, waiting(5)]),
    settle(anew(b"[9]")),
    renew,
    progress,
    log,
    record,
    record_one,
    record_and_take,
    record_again,
    claimed,
]


@pytest.mark.parametrize("limits", [True, False], ids=["limited", "plain"])
@pytest.mark.parametrize("lost", LOST, ids=lambda f: f.__name__)
async def test_a_stale_lease_changes_not_one_byte(store, clock, dump, lost, limits):
    scene = await _scene(store, clock, limits)
    lease = await lost(scene)
    known = lost not in (discarded, forgotten)
    before = await dump()
    refused = before.pop("refusal", [])
    for attempt in TRIES:
        verb = await attempt(store, lease)
        after = await dump()
        log = after.pop("refusal", [])
        assert after == before, attempt.__name__
        assert set(refused) <= set(log)
        assert len(log) - len(refused) == int(known and verb is not None)
        if known and verb:
            last = (await store.events())[-1]
            assert (last.kind, last.verb, last.task) == ("refused", verb, lease.task)
            assert last.fence == lease.fence
        refused = log


async def _scene(store: SqlStore, clock, limits: bool) -> Scene:
    """`limits`: a task that passes some is settled another way than a plain one."""
    if limits:
        await store.limit("type", VICTIM, Limit(max_running=1, max_per_key=1))
    parent = await put_one(store, "job:parent")
    await finish(store, await claim_one(store), waiting(wakes=9))
    key = "k" if limits else None
    fields = {"concurrency_key": key, "key": "order-7", "max_tries": 3}
    id = await put_one(store, VICTIM, parent=parent, **fields)
    lease = (await claim_one(store)).lease
    await store.progress(lease, 10, "begun", b'"saved"')
    line = LogLine(position=1, level="INFO", logger="job", message="begun")
    await store.log(lease, [line])
    await store.record(lease, [Step(position=1, name="first", value=b"1")])
    await store.send_signal(id, new_id(), "go", b"1")
    return Scene(store, clock, id, lease, parent)
