"""Producers, the operator, and the machine room: whoever is not a worker."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from holdfast.errors import InvalidInput, KeyConflict, StoreUnreachable, UnknownTask
from holdfast.stores.sql import SqlStore
from holdfast.tasks.edit import Edit
from holdfast.tasks.limits import Limit
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import Draft
from tests.simulation.ledger import Violation
from tests.simulation.plan import RATES, RECOVERY
from tests.simulation.world import SECOND, rest

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

DEEDS = ("cancel", "cancel", "retry", "discard", "pause", "resume", "signal", "look", "edit")
GATES: tuple[tuple[Literal["type", "queue", "tenant"], str], ...] = (
    ("type", "scarce"),
    ("type", "keyed"),
    ("queue", "default"),
    ("tenant", "a"),
)
POLICY = RetryPolicy(initial_delay=1.0, max_delay=5.0)


async def produce(simulation: "Simulation", store: SqlStore) -> None:
    """Brings tasks in, alone and in batches; asks again while nobody answers."""
    world = simulation.world
    rng = world.rng
    for _ in range(world.plan.rounds):
        await rest(rng.uniform(0.0, world.plan.horizon / world.plan.rounds))
        drafts = [_draft(simulation) for _ in range(rng.choice((1, 1, 2, 4)))]
        if world.plan.lanes:
            drafts.sort(key=lambda draft: draft.tenant)
        try:
            await simulation.enqueue(store, drafts)
        except KeyConflict as conflict:
            world.sometimes("an enqueue was refused for its key")
            if any(draft.id.bytes in simulation.ledger.tasks for draft in drafts):
                raise Violation(f"refused, but something came in: {conflict}") from conflict
        except InvalidInput as hopeless:
            if "before its run_at" not in str(hopeless):
                raise
            world.sometimes("an enqueue was refused for its time")
            if any(draft.id.bytes in simulation.ledger.tasks for draft in drafts):
                raise Violation(f"refused, but something came in: {hopeless}") from hopeless
        except StoreUnreachable:
            world.sometimes("a producer never learnt whether its tasks came in")


def _draft(simulation: "Simulation") -> Draft:
    world = simulation.world
    rng, plan = world.rng, world.plan
    kind = rng.choice(plan.types)
    more: dict[str, Any] = {}
    if plan.keys and rng.random() < 0.6:
        more["key"] = rng.choice(("k1", "k2"))
        more["unique"] = rng.choice(("while_kept", "while_pending"))
        more["payload"] = rng.choice((b"1", b"1", b"1", b"2"))
        kind = "plain"
    if plan.delays and rng.random() < 0.4:
        if rng.random() < 0.5:
            more["delay"] = timedelta(seconds=rng.choice((0.5, 3.0, 8.0)))
        else:  # by a clock of its own, which may be wrong
            wall = world.clock.wall() + round(rng.uniform(-20, 10) * SECOND)
            more["run_at"] = datetime.fromtimestamp(wall / SECOND, UTC)
    if plan.expiry and rng.random() < 0.4:
        more["expires"] = timedelta(seconds=rng.choice((0.0, 2.0, 6.0, 15.0)))
    if plan.priorities:
        more["priority"] = rng.choice((-5, 0, 0, 7))
    if plan.lanes:
        more["queue"] = rng.choice(("default", "mail"))
        more["tenant"] = rng.choice(("a", "b"))
    if kind == "keyed":
        more["concurrency_key"] = rng.choice(("x", "y"))
    if rng.random() < 0.5:
        more["max_tries"] = rng.choice((1, 2, 5))
    if rng.random() < 0.7:
        more["retry"] = POLICY
    id = world.new_uuid()
    return Draft(id=id, type=kind, user_id=("ann", "bob", None)[id.int % 3], **more)


async def operate(simulation: "Simulation", store: SqlStore) -> None:
    """Cancels, retries, discards, pauses, limits, signals; whatever comes to mind."""
    world, ledger = simulation.world, simulation.ledger
    rng = world.rng
    while not world.calm:
        await rest(rng.expovariate(1 / world.plan.operator))
        known = sorted(ledger.tasks)
        some = [UUID(bytes=id) for id in rng.sample(known, min(len(known), rng.choice((1, 1, 3))))]
        try:
            match rng.choice(DEEDS):
                case "cancel" if some:
                    answer = await store.cancel([*some, world.new_uuid()])
                    simulation.judge_cancelled(answer)
                case "retry" if some:
                    await store.retry(some)
                case "discard" if some:
                    await store.discard(some)
                case "pause":
                    await store.pause(rng.choice(("default", "mail")))
                case "resume":
                    await store.resume(rng.choice(("default", "mail")))
                case "signal" if some:
                    await store.send_signal(some[0], world.new_uuid(), "go", b"1")
                case "edit" if some:
                    await _edit(simulation, store, some[0])
                case "look" if some:
                    await store.queue_loads()
                    with suppress(UnknownTask):
                        await store.get(some[0])
        except StoreUnreachable:
            continue


async def _edit(simulation: "Simulation", store: SqlStore, id: UUID) -> None:
    """Changes what has not begun; now and then only if it is as it was seen a while ago."""
    world = simulation.world
    rng, plan = world.rng, world.plan
    wish: dict[str, Any] = {"priority": rng.choice((-5, 0, 7))}
    if plan.lanes:
        wish["queue"] = rng.choice(("default", "mail"))
    if rng.random() < 0.5:
        wish["delay"] = timedelta(seconds=rng.choice((0.0, 0.5, 5.0)))
    if plan.expiry and rng.random() < 0.5:
        wish["expires"] = rng.choice((None, timedelta(0), timedelta(seconds=6)))
    if rng.random() < 0.5:
        wish = {"max_tries": rng.choice((1, 2, 5))}
    seen = None
    with suppress(UnknownTask, InvalidInput):  # fewer tries than it has had are refused
        if rng.random() < 0.3:
            seen = await store.get(id)
            await rest(rng.uniform(0.0, 2.0))
        answer = await store.edit(id, Edit(**wish), seen=seen)
        world.sometimes(f"a change was answered {answer}")


async def limit(simulation: "Simulation", store: SqlStore) -> None:
    """Sets limits and changes them while tasks run."""
    world = simulation.world
    rng, kinds = world.rng, world.plan.limits
    while not world.calm:
        kind, name = rng.choice(GATES)
        limits: dict[str, Any] = {}
        if kind in kinds:
            limits["max_running"] = rng.choice((1, 2, 3, None))
        if "rate" in kinds and rng.random() < 0.5:
            limits["rate"] = rng.choice([*RATES.values(), None])
        if "per_key" in kinds and kind == "type":
            limits["max_per_key"] = rng.choice((1, 1, 2, None))
        with suppress(StoreUnreachable):
            await store.limit(kind, name, Limit(**limits))
        await rest(rng.expovariate(1 / 4.0))


async def keep_up(simulation: "Simulation", store: SqlStore) -> None:
    """The chores: any process may do them at any time."""
    world = simulation.world
    rng = world.rng
    while not world.calm:
        await rest(rng.uniform(0.2, 2 * RECOVERY))
        try:
            await store.recover()
            if rng.random() < 0.3:
                await store.promote()
            if world.plan.expiry and rng.random() < 0.5:
                await store.expire()
            if rng.random() < 0.3:
                await store.sweep_wakes()
            if rng.random() < 0.05:
                await store.mark_stale(timedelta(seconds=90))
            if world.plan.cleanup and rng.random() < 0.3:
                kept = timedelta(seconds=rng.choice((0.0, 5.0)))
                await store.cleanup(kept, dead_letters=rng.choice((None, kept)))
        except StoreUnreachable:
            continue


async def mishap(simulation: "Simulation", _: SqlStore) -> None:
    """Somebody sets the wall clock, or pulls the plug."""
    world = simulation.world
    while not world.calm:
        await rest(world.rng.uniform(2.0, 12.0))
        if world.plan.wall_jumps and not world.calm:
            seconds = world.rng.choice((-3600.0, -20.0, -20.0, -1.0, 1.0, 20.0))
            simulation.set_wall(seconds)
        if world.plan.reboots and not world.calm and world.chance(0.5):
            simulation.reboot()
