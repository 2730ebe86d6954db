"""Why a task is not running, in plain words, and what to do about it. Pure: facts are handed in."""

import shlex
from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.answers import Gate, Standing, WorkerRecord
from holdfast.tasks.lane import Lane, Serving

__all__ = [
    "LIVE",
    "Reason",
    "counted",
    "explain",
    "mending",
    "overloaded",
    "resuming",
    "starting",
    "unserved",
]

LIVE = ("starting", "ready", "blocked", "deaf")  # of the states that a worker may be in
_MENDING = {
    "blocked": "something blocks the event loop: make such functions `def`, or isolation='process'",
    "deaf": "claims get no answer: look at the store and at the worker's log, or restart it",
}
_MOST_NAMED = 5


class Reason(msgspec.Struct, frozen=True):
    """One thing that holds a task back, and the way out."""

    why: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.why}; {self.advice}" if self.advice else self.why


def explain(standing: Standing, workers: Sequence[WorkerRecord]) -> list[Reason]:
    """What holds it back, most important first."""
    match standing.place:
        case "outcome":
            return [Reason("it has ended", "look at its outcome, or retry it")]
        case "lease":
            return [_held(standing)]
        case "waiting":
            return [Reason(f"it waits: {standing.reason or 'for something that it asked for'}")]
        case _:
            busy = [] if standing.due else list(overloaded(_takers(standing.lane, workers)))
            if reasons := list(_reasons(standing, workers)):
                return reasons + busy
            return busy + list(_in_line(standing, busy))


def _held(standing: Standing) -> Reason:
    left = standing.lease_left or 0.0
    holder = standing.holder or "a worker"
    if left < 0:
        return Reason(
            f"{holder} held it and stopped renewing {-left:.0f} s ago",
            "the next recovery gives it back; `holdfast recover` does so now",
        )
    asked = ", and was asked to cancel it" if standing.cancel_requested else ""
    return Reason(f"it is running: {holder} holds it for another {left:.0f} s{asked}")


def _reasons(standing: Standing, workers: Sequence[WorkerRecord]) -> Iterator[Reason]:
    if standing.due is not None and standing.due > 0:
        yield Reason(f"it is not due for another {_span(standing.due)}", "retry it to run it now")
    if standing.queue_paused:
        queue = standing.lane.queue
        yield Reason(f"queue {queue!r} is paused", f"resume it: {resuming(queue)}")
    if nobody := unserved(standing.lane, workers):
        yield nobody
    yield from _limits(standing)


def _in_line(standing: Standing, busy: Sequence[Reason]) -> Iterator[Reason]:
    if ahead := standing.ahead:
        many = "1,000 or more come" if ahead >= 1000 else counted(ahead, "comes", "come")
        why = f"it stands in line: {many} before it"
        yield Reason(why, "" if busy else "add workers or slots")
    elif not busy:
        yield Reason("nothing holds it back: the next free worker takes it")


def counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# ── who takes it ─────────────────────────────────────────────────────────────────────────────


def unserved(lane: Lane, workers: Sequence[WorkerRecord]) -> Reason | None:
    """Why nobody takes such tasks; None: somebody does."""
    live = _live(lane, workers)
    if not live:
        return Reason("no worker is alive", starting())
    knowing = _knowing(lane, live)
    if not knowing:
        known = sorted({type for worker in live for type in worker.types})
        advice = "start a worker whose app imports it, or check the name"
        if versions := [type for type in known if f"{type}@".startswith(f"{lane.type}@")]:
            its = f"in version {lane.version!r}" if lane.version else "without a version"
            known, advice = versions, f"start a worker whose app has it {its}"
        return Reason(
            f"no live worker knows the type {_typed(lane)!r}; they know "
            f"{', '.join(known) or 'none'}",
            advice,
        )
    if any(_serves(worker, lane) for worker in knowing):
        return None
    return _refused(lane, knowing)


def overloaded(takers: Sequence[WorkerRecord]) -> Iterator[Reason]:
    """Why none of those that take it takes one more just now; nothing: one of them does."""
    ill = [worker for worker in takers if worker.status in _MENDING]
    well = [worker for worker in takers if worker.status not in _MENDING]
    if any(worker.active < worker.slots for worker in well):
        return
    if well:
        slots = sum(worker.slots for worker in well)
        of = f"of {counted(len(well), 'worker', 'workers')}"
        taken = (
            f"the only slot {of} is taken" if slots == 1 else f"all {slots} slots {of} are taken"
        )
        yield Reason(taken, "wait, or add workers or slots: holdfast worker --concurrency …")
    if ill:
        do = "lives but does" if len(ill) == 1 else "live but do"
        advice = mending({worker.status for worker in ill})
        yield Reason(
            f"{_some([_unwell(worker) for worker in ill])} {do} not get to work",
            f"{advice}; or start another worker",
        )


def _unwell(worker: WorkerRecord) -> str:
    if worker.status == "blocked":
        return f"{worker.name} (blocked: its event loop is {_span(worker.loop_lag)} late)"
    return f"{worker.name} (deaf: it has free slots, and no claim of it is answered)"


def mending(states: Collection[str]) -> str:
    """What helps workers that live but do not get to work."""
    return "; ".join(help for state, help in _MENDING.items() if state in states)


def starting(queue: str | None = None) -> str:
    return f"start one: holdfast worker --app …{f' --queues {queue}' if queue else ''}"


def resuming(queue: str) -> str:
    return f'holdfast queues resume {queue} or app.resume_queue("{queue}")'


def _takers(lane: Lane, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    knowing = _knowing(lane, _live(lane, workers))
    return [worker for worker in knowing if _serves(worker, lane)]


def _live(lane: Lane, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    theirs = (None, lane.tenant)  # another tenant's worker is no help, and not named
    return [w for w in workers if w.status in LIVE and w.tenant in theirs]


def _knowing(lane: Lane, live: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    return [worker for worker in live if _typed(lane) in worker.types]


def _typed(lane: Lane) -> str:
    return f"{lane.type}@{lane.version}" if lane.version else lane.type


def _refused(lane: Lane, knowing: Sequence[WorkerRecord]) -> Reason:
    """Why those that know it do not take it."""

    def nobody(only: str) -> bool:
        return not any(_serves(worker, lane, only=only) for worker in knowing)

    names = sorted({worker.name for worker in knowing})
    they = f"({_some(names)} {'does' if len(names) == 1 else 'do'} not)"
    if nobody("tenant"):
        return Reason(
            f"no live worker that knows it takes tasks of tenant {lane.tenant!r} {they}",
            "start one with this tenant among its --tenants, or without the flag",
        )
    if nobody("queue"):
        return Reason(
            f"no live worker serves queue {lane.queue!r} {they}",
            f"{starting(lane.queue)}; or move the task: holdfast tasks edit ID --queue …",
        )
    if nobody("requires"):
        return Reason(
            f"no live worker offers all of {', '.join(lane.requires)}",
            "start one with these --capabilities",
        )
    if nobody("tag"):
        return Reason(
            f"no live worker that knows it takes tasks tagged {', '.join(lane.tags)} {they}",
            "start one with one of these among its --tags, or without the flag; or change the "
            "task: holdfast tasks edit ID --tags …",
        )
    return Reason(
        f"no live worker that knows it takes its tenant, queue, tags and requirements {they}",
        "some take one of these, others another: start one that takes them all",
    )


def _serves(worker: WorkerRecord, lane: Lane, only: str | None = None) -> bool:
    """Whether it takes such tasks; `only`: as far as this is concerned."""

    def asked(what: str, labels: tuple[str, ...]) -> frozenset[str] | None:
        return frozenset(labels) or None if only in (None, what) else None

    offers = frozenset(worker.capabilities if only in (None, "requires") else lane.requires)
    return Serving(
        queues=asked("queue", worker.queues),
        tags=asked("tag", worker.tags),
        capabilities=offers,
        tenants=asked("tenant", worker.tenants),
    ).serves(lane)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# ── limits ───────────────────────────────────────────────────────────────────────────────────


def _limits(standing: Standing) -> Iterator[Reason]:
    full = [gate for gate in standing.gates if _is_full(gate)]
    of_key = [gate for gate in standing.gates if _is_full_for_key(gate, standing)]
    # Of several that are full it is not known which task fills which: they are named at the end.
    alone = len(full) + len(of_key) == 1
    for gate in standing.gates:
        if gate in full:
            run = counted(gate.running or 0, "runs", "run")
            yield Reason(
                f"{_limited(gate)} may run {gate.max_running} at once, and {run}"
                + (_by(standing, gate.running) if alone else ""),
                f"wait for one of them, or {_raising(gate, '--max-concurrent')}",
            )
        if gate in of_key:
            hold = counted(gate.running_of_key or 0, "holds", "hold")
            yield Reason(
                f"{_limited(gate)} may run {gate.max_per_key} at once for key "
                f"{standing.concurrency_key!r}, and {hold} it"
                + (_by(standing, gate.running_of_key) if alone else ""),
                f"wait for one of them, or {_raising(gate, '--max-concurrent-per-key')}",
            )
        if gate.rate_opens is not None and gate.rate_opens > 0:
            yield Reason(
                f"the rate of {_limited(gate)} opens again in {_span(gate.rate_opens)}",
                f"wait until then, or {_raising(gate, '--rate-limit')}",
            )
    if standing.occupied_by and not alone:
        names = ", ".join(map(str, standing.occupied_by))
        yield Reason(f"these fill the limits: {names}", "holdfast tasks show ID says more of each")


def _is_full(gate: Gate) -> bool:
    return gate.max_running is not None and (gate.running or 0) >= gate.max_running


def _is_full_for_key(gate: Gate, standing: Standing) -> bool:
    """What stands in its lane is one of those that its key let in."""
    is_full = gate.max_per_key is not None and (gate.running_of_key or 0) >= gate.max_per_key
    return is_full and standing.place != "ready"


def _limited(gate: Gate) -> str:
    return f"{'function' if gate.kind == 'type' else gate.kind} {gate.name!r}"


def _raising(gate: Gate, option: str) -> str:
    return f"raise the limit: holdfast limits set {gate.kind} {shlex.quote(gate.name)} {option} …"


def _by(standing: Standing, count: int | None) -> str:
    """Of those that run some are known; what a key let in may still wait for a worker."""
    names = ", ".join(map(str, standing.occupied_by))
    more = (count or 0) - len(standing.occupied_by)
    if not names:
        return (
            " (let in before it, and waiting for a worker)" if standing.place == "blocked" else ""
        )
    return f" ({names} and {more} more)" if more > 0 else f" ({names})"
