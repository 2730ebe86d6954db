"""Why a task is not running, in plain words, and what to do about it. Pure: facts are handed in."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.answers import Gate, Standing, WorkerRecord
from holdfast.tasks.lane import Lane, Serving

__all__ = ["Reason", "explain", "unserved"]

_LIVE = ("starting", "ready", "blocked", "deaf")


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
            reasons = list(_reasons(standing, workers))
            return reasons or [_in_line(standing)]


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
        yield Reason(f"queue {standing.lane.queue!r} is paused", "resume the queue")
    if nobody := unserved(standing.lane, workers):
        yield nobody
    for gate in standing.gates:
        yield from _limited(gate, standing)


def unserved(lane: Lane, workers: Sequence[WorkerRecord]) -> Reason | None:
    """Why nobody takes such tasks; None: somebody does."""
    theirs = (None, lane.tenant)  # another tenant's worker is no help, and not named
    live = [w for w in workers if w.status in _LIVE and w.tenant in theirs]
    return next(_unserved(lane, live), None)


def _unserved(lane: Lane, live: Sequence[WorkerRecord]) -> Iterator[Reason]:
    if not live:
        yield Reason("no worker is alive", "start one: holdfast worker --app …")
        return
    name = f"{lane.type}@{lane.version}" if lane.version else lane.type
    knowing = [worker for worker in live if name in worker.types]
    if not knowing:
        known = sorted({type for worker in live for type in worker.types})
        yield Reason(
            f"no live worker knows the type {name!r}; they know {', '.join(known) or 'none'}",
            "start a worker whose app imports it, or check the name",
        )
        return
    if any(_serves(worker, lane) for worker in knowing):
        return
    names = ", ".join(sorted({worker.name for worker in knowing})[:5])
    if not any(_serves(worker, lane, only="tenant") for worker in knowing):
        yield Reason(
            f"no live worker that knows it takes tasks of tenant {lane.tenant!r} ({names} do not)",
            "start one with this tenant among its --tenants, or without the flag",
        )
    elif not any(_serves(worker, lane, only="queue") for worker in knowing):
        yield Reason(f"no live worker serves queue {lane.queue!r} ({names} do not)")
    elif not any(_serves(worker, lane, only="requires") for worker in knowing):
        yield Reason(
            f"no live worker offers all of {', '.join(lane.requires)}",
            "start one with these --capabilities",
        )
    else:
        tags = ", ".join(lane.tags)
        yield Reason(f"no live worker that knows it takes tasks tagged {tags}")


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


def _limited(gate: Gate, standing: Standing) -> Iterator[Reason]:
    name = f"{'function' if gate.kind == 'type' else gate.kind} {gate.name!r}"
    if gate.max_running is not None and (gate.running or 0) >= gate.max_running:
        yield Reason(
            f"{name} may run {gate.max_running} at once, and {gate.running} run"
            + _by(standing.occupied_by),
            "wait for one of them, or raise the limit: holdfast limits set",
        )
    if gate.max_per_key is not None and (gate.running_of_key or 0) >= gate.max_per_key:
        yield Reason(
            f"{name} may run {gate.max_per_key} at once for key {standing.concurrency_key!r}, and "
            f"{gate.running_of_key} run",
            "wait for one of them",
        )
    if gate.rate_opens is not None and gate.rate_opens > 0:
        yield Reason(f"the rate of {name} opens again in {_span(gate.rate_opens)}")


def _by(tasks: Iterable[object]) -> str:
    names = [str(task) for task in tasks]
    return f" ({', '.join(names)})" if names else ""


def _in_line(standing: Standing) -> Reason:
    ahead = standing.ahead
    if ahead:
        many = "1,000 or more" if ahead >= 1000 else f"{ahead}"
        return Reason(f"it stands in line: {many} come before it", "add workers or slots")
    return Reason("nothing holds it back: the next free worker takes it")


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
