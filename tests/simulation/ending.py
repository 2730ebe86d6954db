"""After the horizon nothing goes wrong any more: everything must come to its end."""

from collections.abc import Coroutine
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.stores.sql import SqlStore
from holdfast.tasks.limits import Limit
from tests.simulation.ledger import Violation, brief, short
from tests.simulation.line import at_once
from tests.simulation.plan import RECOVERY
from tests.simulation.world import SECOND, rest

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T")

PATIENCE = 400.0  # seconds of calm in which everything must have ended
_OF_TASKS = (
    "task", "task_key", "expiry", "ready", "later", "blocked", "lease", "outcome", "attempt",
    "refusal", "progress", "step", "signal", "wake",
)  # fmt: skip
_COUNTERS = """
select
  (
    select coalesce(sum(abs(
      g.running - coalesce((select sum(f.n) from freed f where f.gate = g.id), 0)
    )), 0)
    from gate g
  ),
  coalesce((select sum(running) from key_gate), 0) - coalesce((select sum(freed) from nudge), 0)
"""


def wind_up(simulation: "Simulation") -> None:
    _calm_down(simulation)
    _run_dry(simulation)
    _check_books(simulation)
    _check_history(simulation)
    _forget_everything(simulation)


def _calm_down(simulation: "Simulation") -> None:
    world = simulation.world
    world.calm = True
    world.tell(None, "calm")
    if world.plan.massacre:
        world.sometimes("everybody died at once")
        for process in list(world.processes):
            world.kill(process, "massacre")
    for process in world.processes:
        process.stopped_until = min(process.stopped_until, world.now + 20 * SECOND)
    if world.plan.wall_jumps:  # somebody sets the clock right
        simulation.set_wall(86400.0)
    simulation.new_worker("delta")
    simulation.start("warden", _warden)


async def _warden(simulation: "Simulation", store: SqlStore) -> None:
    """Opens all queues, wakes all who wait for a signal, and recovers in time."""
    ledger = simulation.ledger
    if simulation.world.plan.limits:  # with a rate on everything, calm would last for ever
        await store.limit("queue", "default", Limit())
        await store.limit("tenant", "a", Limit())
    for passes in count():
        for queue in sorted(ledger.paused):
            await store.resume(queue)
        await store.recover()
        _recovered_in_time(simulation)
        if passes % 3 == 0:
            await store.expire()
            await store.sweep_wakes()
        for id in [s.id for s in ledger.stands.values() if s.waiting == "signal"]:
            await store.send_signal(UUID(bytes=id), simulation.world.new_uuid(), "go", b"1")
        await rest(RECOVERY)


def _recovered_in_time(simulation: "Simulation") -> None:
    """One look leaves no lease behind that is past its end (I8)."""
    ledger = simulation.ledger
    for stand in ledger.stands.values():
        if stand.place == "lease" and ledger.lapsed(stand):
            ledger.fail("has lapsed, but recovery passed it by", None, stand.id)


def _run_dry(simulation: "Simulation") -> None:
    """Every task ends, whatever happened to it (I1)."""
    ledger = simulation.ledger
    simulation.world.run(PATIENCE, until=lambda: not ledger.open)
    stuck = [stand for stand in ledger.stands.values() if stand.place != "outcome"]
    if stuck:
        lines = (f"{short(stand.id)} {brief(ledger, stand)}" for stand in stuck)
        raise Violation("\n  ".join(["never ended:", *lines]))


def _check_books(simulation: "Simulation") -> None:
    """What was acknowledged is there, and nothing is counted any more."""
    ledger, conn = simulation.ledger, simulation.base.conn
    there = {id for (id,) in conn.execute("select id from task")}
    if there != ledger.tasks.keys() or there != ledger.stands.keys():
        raise Violation("the tables have other tasks than the ledger")
    missing = ledger.acknowledged - there - ledger.forgotten
    if missing:
        raise Violation(f"acknowledged, and lost: {[id.hex() for id in missing]}")
    ((gates, keys),) = conn.execute(_COUNTERS)
    if gates or keys:
        raise Violation(f"counters are not back at zero: gates {gates}, keys {keys}")


def _check_history(simulation: "Simulation") -> None:
    """Events come in order, fences grow, each life ends, and people see how (I4)."""
    store = simulation.store(simulation.world.process("auditor"))
    after, ended, fences = 0, set[bytes](), dict[UUID, int]()
    while events := _now(store.events(after)):
        for event in events:
            if event.seq <= after:
                raise Violation(f"event {event} out of order")
            after = event.seq
            if event.kind == "refused" or event.fence is None:
                continue
            if event.fence < fences.get(event.task, 0):
                raise Violation(f"{event} has a fence below {fences[event.task]}")
            fences[event.task] = event.fence
            if event.kind in ("done", "failed", "cancelled"):
                ended.add(event.task.bytes)
    if ended != simulation.ledger.stands.keys():
        raise Violation("the history tells of other ends than the ledger")
    for id in list(simulation.ledger.stands)[:2]:
        _now(store.get(UUID(bytes=id)))  # the ledger compares


def _forget_everything(simulation: "Simulation") -> None:
    """When all is forgotten, nothing is left behind."""
    store = simulation.store(simulation.world.process("cleaner"))
    simulation.world.clock.advance(10)
    while _now(store.cleanup(timedelta(0), dead_letters=timedelta(0))):
        pass  # parents go first, then what they may have asked for
    conn = simulation.base.conn
    counts = {table: _count(conn.execute(f"select count(*) from {table}")) for table in _OF_TASKS}
    left = {table: n for table, n in counts.items() if n}
    if left:
        raise Violation(f"all is forgotten, but there are rows left: {left}")


def _count(rows: Any) -> int:
    ((n,),) = rows
    return int(n)


def _now(call: Coroutine[Any, Any, T]) -> T:
    """In calm weather nothing comes between."""
    answer: T = at_once(call)
    return answer
