"""What the functions of the simulation do, by their type."""

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.answers import Journal, Step
from holdfast.errors import KeyConflict, LeaseLost, StoreUnreachable, UnknownTask
from holdfast.tasks.lifecycle import Done, Errored, HandedBack, Outcome, Snoozed, Waiting
from holdfast.tasks.task import Claimed, Draft, Failure, Lease
from tests.simulation.ledger import Violation

if TYPE_CHECKING:
    from tests.simulation.workers import Worker

BOOM = Failure(type="Boom", message="it broke")


async def handle(worker: "Worker", claimed: Claimed) -> Outcome | None:
    """How the attempt ends; None: it heard that its lease is lost."""
    try:
        if worker.world.chance(0.3):
            await worker.store.progress(claimed.lease, worker.rng.random() * 100, "on it")
        match claimed.lane.type:
            case "flow":
                return await _flow(worker, claimed)
            case "signal":
                return await _signal(worker, claimed.lease)
            case _:
                return _plain(worker)
    except LeaseLost:
        return None if not worker.reckless else _plain(worker)
    except StoreUnreachable:
        return Errored(Failure(type="StoreUnreachable", message="no answer"))


def _plain(worker: "Worker") -> Outcome:
    if worker.world.calm:
        return Done(b"1")
    dice = worker.rng.random()
    if dice < 0.6:
        return Done(b"1")
    if dice < 0.8:
        return Errored(BOOM)
    if dice < 0.85:
        return Errored(BOOM, retryable=False)
    if dice < 0.95:
        return Snoozed(timedelta(seconds=worker.rng.choice((0.0, 1.0, 5.0))))
    return HandedBack()


async def _flow(worker: "Worker", claimed: Claimed) -> Outcome:
    """Makes children, waits for all of them, and never makes them twice."""
    lease, store = claimed.lease, worker.store
    recorded = worker.simulation.steps.get(lease.task)  # before it reads, which may take long
    wakes = (await store.news(lease.task, [])).wakes  # before what they tell of
    journal = await store.journal(lease.task)
    children = _found(worker, lease, recorded, journal)
    if children is None:
        children = [worker.world.new_uuid() for _ in range(worker.rng.choice((1, 2, 3)))]
        value = msgspec.json.encode(children)
        await store.record(lease, [Step(position=0, name="children", value=value)])
        worker.simulation.steps[lease.task] = value
    open_children = []
    for child in children:
        try:
            if await store.ending(child) is None:
                open_children.append(child)
        except UnknownTask:
            # Never made; or forgotten while this one had ended, before somebody replayed it. The
            # rule of cleanup sees to it that it is not forgotten while its parent lives.
            await _spawn(worker, claimed, child)
            open_children.append(child)
    if not open_children:
        return Done(b"1")
    worker.world.sometimes("a parent went on waiting for its other children", bool(wakes))
    return Waiting(wakes=len(open_children), seen=tuple(wakes), reason="children")


def _found(
    worker: "Worker", lease: Lease, recorded: bytes | None, journal: Journal
) -> list[UUID] | None:
    """A step that was recorded is there, byte for byte (I7)."""
    found = journal.steps[0].value if journal.steps else None
    kept = lease.task.bytes not in worker.ledger.forgotten
    if recorded is not None and kept and found != recorded:
        raise Violation(f"step of {lease.task}: recorded {recorded!r}, found {found!r}")
    if found is None:
        return None
    worker.world.sometimes("an attempt went on from a recorded step")
    return msgspec.json.decode(found, type=list[UUID])


async def _spawn(worker: "Worker", claimed: Claimed, child: UUID) -> None:
    poison = "poison" in worker.world.plan.types and child.int % 3 == 0
    draft = Draft(
        id=child,
        type="poison" if poison else "plain",
        tenant=claimed.lane.tenant,
        parent=claimed.lease.task,
        max_tries=2,
    )
    try:
        await worker.simulation.enqueue(worker.store, [draft])
    except KeyConflict as error:
        raise Violation(str(error)) from error


async def _signal(worker: "Worker", lease: Lease) -> Outcome:
    """Waits for one signal, or for a timer."""
    news = await worker.store.news(lease.task, [], signals=["go"])
    journal = await worker.store.journal(lease.task)
    if news.signals:
        await worker.store.record(
            lease,
            [Step(position=len(journal.steps), name="signal", value=news.signals[0].payload)],
            consumed=[news.signals[0].id],
            seen=news.wakes,
        )
        return Done(b"1")
    if worker.world.calm:
        return Done(b"1")
    timer = worker.rng.choice((None, timedelta(seconds=3)))
    return Waiting(timer=timer, seen=tuple(news.wakes), reason="signal")
