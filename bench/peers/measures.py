"""What is measured of everyone, in the same way: throughput, pick-up, and kill -9."""

import statistics
import time

import msgspec

from bench.peers import ledger
from bench.peers.processes import Failed, Field, wait_until
from bench.peers.stores import settle

__all__ = [
    "Killed",
    "Limits",
    "PickUp",
    "Throughput",
    "fate",
    "killed",
    "pick_up",
    "rated",
    "throughput",
]

HELD = 10  # tasks of a second that run when their worker is killed


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    tasks: int = 20_000
    seconds: float = 6.0  # at most, for one measurement
    least: float = 1.5  # seconds of draining; else once more, with more tasks
    wait: float = 20.0  # for what a killed worker held
    samples: int = 150
    try_slots: bool = False  # all numbers of slots, not just the one that is known to be best
    starts_within: float = 30.0


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    rate: float  # tasks per second, from when every worker had begun
    counted: int
    backlog: int
    seconds: float
    slots: int  # of each worker
    shared: bool = True  # every worker had some


class PickUp(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from before the call to the first line of the task."""

    p50: float
    p99: float
    samples: int


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the tasks that ran when their worker was killed."""

    tasks: int
    finished: int
    unfinished: int  # lost or stuck, after `waited`
    finished_twice: int
    again: int  # began again
    first: float | None  # seconds until one of them began again; None: none did
    last: float | None  # seconds until the last of them began again; None: not all of them did
    waited: float


def throughput(field: Field, limits: Limits, *, tasks: int, workers: int, slots: int) -> Throughput:
    """Drain a backlog of no-op tasks; the ledger tells the rate while all workers were at it."""
    total = field.ask("fill", count=tasks, seconds=limits.seconds * 0.75)
    settle(field.url)
    for number in range(workers):
        field.work(slots, ledger=f"w{number}", name=f"w{number}")
    begun = wait_until(
        lambda: ledger.lines(field.ledger) > 0, limits.starts_within, check=field.check
    )
    if not begun:
        raise Failed(f"no task ran within {limits.starts_within:.0f} s: {field.log()}")
    wait_until(lambda: ledger.lines(field.ledger) >= total, limits.seconds, check=field.check)
    return rated(ledger.read(field.ledger), workers=workers, slots=slots, backlog=total)


def rated(
    records: dict[str, list[ledger.Record]], *, workers: int, slots: int, backlog: int
) -> Throughput:
    """The rate since the last of the workers began."""
    shared = len(records) == workers
    start = max(each[0].when for each in records.values()) if shared else 0.0
    times = sorted(record.when for each in records.values() for record in each)
    counted = [when for when in times if when >= start]
    seconds = counted[-1] - counted[0]
    return Throughput(
        rate=(len(counted) - 1) / seconds if seconds > 0 else 0.0,
        counted=len(counted),
        backlog=backlog,
        seconds=seconds,
        slots=slots,
        shared=shared,
    )


def pick_up(field: Field, limits: Limits, slots: int) -> PickUp:
    """Lone tasks, one after another, for an idle worker."""
    field.work(slots, ledger="w0", name="w0")
    _warm_up(field, limits)
    seen = field.ask(
        "latency", folder=str(field.ledger), samples=limits.samples, seconds=limits.seconds
    )
    return PickUp(
        p50=statistics.median(seen),
        p99=statistics.quantiles(seen, n=100)[98],
        samples=len(seen),
    )


def killed(field: Field, limits: Limits) -> Killed:
    """kill -9 of a worker amid tasks of a second; a second worker, of the same name (as after a
    restart), is started at that moment."""
    doomed = field.work(HELD, ledger="doomed", name="w0")
    _warm_up(field, limits)
    field.ask("enqueue", task="hold", count=HELD)
    running = wait_until(lambda: len(_held(field)) >= HELD, 10)
    time.sleep(0.3)  # into the middle of them
    lost = _held(field) - _ended(field)
    field.work(HELD, ledger="heir", name="w0")
    doomed.kill()
    moment = time.time()
    if not running:
        raise Failed(f"only {len(lost)} of {HELD} tasks ran at once: {field.log()}")
    lost -= _ended(field)
    wait_until(lambda: len(_ended(field)) >= HELD, limits.wait)
    time.sleep(2)  # for whoever runs what is done already
    return fate(ledger.read(field.ledger), lost, moment)


def fate(records: dict[str, list[ledger.Record]], lost: set[int], moment: float) -> Killed:
    """What became of the lost, by the ledgers of the doomed and of the heir."""
    ends = ledger.counted([each for some in records.values() for each in some], end=True)
    again: dict[int, float] = {}
    for record in records.get("heir", []):
        if record.number in lost and not record.ended:
            again.setdefault(record.number, record.when)
    return Killed(
        tasks=len(lost),
        finished=sum(1 for number in lost if ends[number]),
        unfinished=sum(1 for number in lost if not ends[number]),
        finished_twice=sum(1 for count in ends.values() if count > 1),
        again=len(again),
        first=min(again.values()) - moment if again else None,
        last=max(again.values()) - moment if again and len(again) == len(lost) else None,
        waited=time.time() - moment,
    )


def _warm_up(field: Field, limits: Limits) -> None:
    """The worker has run a task: it is there, and idle."""
    field.ask("enqueue", task="noop", count=1)
    begun = wait_until(
        lambda: ledger.lines(field.ledger) > 0, limits.starts_within, check=field.check
    )
    if not begun:
        raise Failed(f"no task ran within {limits.starts_within:.0f} s: {field.log()}")
    time.sleep(1)


def _held(field: Field) -> set[int]:
    return _numbers(field, end=False)


def _ended(field: Field) -> set[int]:
    return _numbers(field, end=True)


def _numbers(field: Field, *, end: bool) -> set[int]:
    records = [each for some in ledger.read(field.ledger).values() for each in some]
    return set(ledger.counted(records, end=end))
