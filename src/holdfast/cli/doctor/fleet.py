"""Checks of what a desk says: clocks, queues, workers and leases."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from holdfast.cli.cells import span
from holdfast.cli.doctor.finding import Finding, fail, ok, warn
from holdfast.clock import here
from holdfast.desk.desk import Desk
from holdfast.desk.shapes import LeaseShape, QueueView, TaskQuery, WorkerView
from holdfast.explain import LIVE, mending

__all__ = ["clock", "event_loops", "lease_length", "recovery", "stale_workers", "workers_of_queues"]

_SKEW = 1.0
_SAMPLE = 1000
_ENOUGH = 20  # attempts of a type before its 95th percentile says anything
_OVERDUE = 60.0  # recovery looks every 30 s or more often


async def clock(desk: Desk) -> Finding:
    before = here()
    stats = await desk.stats()
    after = here()
    ahead = (before + (after - before) / 2 - stats.server_time).total_seconds()
    doubt = (after - before).total_seconds() / 2
    if abs(ahead) - doubt <= _SKEW:
        return ok("HF103", f"this host and the store agree within {span(max(abs(ahead), doubt))}")
    way = "ahead of" if ahead > 0 else "behind"
    return fail(
        "HF103",
        f"this host is {span(abs(ahead))} {way} the store; leases go by the store's clock, so they "
        "hold, but what this host writes and shows of time is wrong",
        "set this host's clock by NTP (chrony, systemd-timesyncd)",
    )


async def lease_length(
    desk: Desk, workers: Sequence[WorkerView], lease: timedelta | None, otherwise: timedelta
) -> Finding:
    """Renewals carry long work; who cannot renew for a while should not lose it for that alone.
    `lease`: as somebody says that it is; else as the workers have it that run such tasks."""

    def limit(type: str) -> float:
        known = [w.lease_seconds for w in workers if w.lease_seconds and _knows(w, type)]
        return lease.total_seconds() if lease else min(known, default=otherwise.total_seconds())

    lengths: dict[str, list[float]] = defaultdict(list)
    for task in (await desk.tasks(TaskQuery(status="done", limit=_SAMPLE))).data:
        if task.started_at and task.finished_at:
            lengths[task.type].append((task.finished_at - task.started_at).total_seconds())
    usual = {type: p95(found) for type, found in lengths.items() if len(found) >= _ENOUGH}
    long = {type: seconds for type, seconds in usual.items() if seconds > limit(type)}
    if not long:
        return ok("HF104", "leases are longer than 95 of 100 attempts of each type")
    told = ", ".join(
        f"{type} ({span(seconds)}, lease {span(limit(type))})"
        for type, seconds in sorted(long.items())[:5]
    )
    return warn(
        "HF104",
        f"5 of 100 attempts take longer than a lease: {told}; they live by renewals, and a pause "
        "of the process loses them",
        f"--lease {max(long.values()) * 2:.0f}s, or save progress so that a new attempt goes on",
    )


def _knows(worker: WorkerView, type: str) -> bool:
    return worker.status in LIVE and any(one.partition("@")[0] == type for one in worker.types)


def p95(lengths: Sequence[float]) -> float:
    ordered = sorted(lengths)
    return ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]


async def workers_of_queues(
    desk: Desk, queues: Sequence[QueueView], workers: Sequence[WorkerView]
) -> Finding:
    due = [queue for queue in queues if queue.claimable and not queue.paused]
    live = [worker for worker in workers if worker.status in LIVE]
    ours = [worker for worker in live if worker.tenant_id is None]
    if alone := [queue for queue in due if not _is_served(queue, live)]:
        return fail("HF105", f"no live worker serves {_due(alone)}", _start(alone))
    if alone := [queue for queue in due if not _is_served(queue, ours)]:
        return warn("HF105", f"only workers of tenants serve {_due(alone)}", _start(alone))
    for queue in due:
        if nobody := [why for why in await desk.queue_why(queue.queue) if why.unserved]:
            told = f"in queue {queue.queue} {'; '.join(why.why for why in nobody[:3])}"
            return fail("HF105", told, nobody[0].advice or f"holdfast queues why {queue.queue}")
    return ok("HF105", "every queue with due tasks has a live worker that takes them")


def _is_served(queue: QueueView, workers: Sequence[WorkerView]) -> bool:
    return any(not worker.queues or queue.queue in worker.queues for worker in workers)


def _due(queues: Sequence[QueueView]) -> str:
    return ", ".join(f"{queue.queue} ({queue.claimable} due)" for queue in queues[:5])


def _start(queues: Sequence[QueueView]) -> str:
    return f"holdfast worker --app … --queues {','.join(queue.queue for queue in queues[:5])}"


def stale_workers(workers: Sequence[WorkerView], leases: Sequence[LeaseShape]) -> Finding:
    stale = {(w.tenant_id, w.worker_id) for w in workers if w.status == "stale"}
    live = {(w.tenant_id, w.worker_id) for w in workers if w.status in (*LIVE, "draining")}
    silent = {name for _, name in stale - live}
    held = [lease for lease in leases if lease.worker_id in silent]
    if not held:
        return ok("HF106", "no worker that has gone silent holds a lease")
    holders = ", ".join(sorted({lease.worker_id or "?" for lease in held})[:5])
    longest = max(lease.seconds_left for lease in held)
    return fail(
        "HF106",
        f"{len(held)} leases are held by workers that went silent: {holders}",
        f"they lapse within {span(max(longest, 0))} and are recovered then; see why these workers "
        "stopped (holdfast workers show NAME)",
    )


def recovery(leases: Sequence[LeaseShape]) -> Finding:
    overdue = [lease for lease in leases if lease.seconds_left < -_OVERDUE]
    if not overdue:
        lapsed = sum(lease.seconds_left < 0 for lease in leases)
        return ok("HF107", f"{lapsed} leases have lapsed, none for longer than {_OVERDUE:.0f} s")
    oldest = -min(lease.seconds_left for lease in overdue)
    return fail(
        "HF107",
        f"{len(overdue)} leases lapsed up to {span(oldest)} ago and nobody took them back",
        "holdfast recover does so now; workers do it by themselves: start one, or see its log",
    )


def event_loops(workers: Sequence[WorkerView]) -> Finding:
    bad = [worker for worker in workers if worker.status in ("blocked", "deaf")]
    if not bad:
        return ok("HF108", "no worker is blocked")
    told = ", ".join(f"{w.worker_id} ({w.status}, lag {span(w.loop_lag_seconds)})" for w in bad[:5])
    return warn(
        "HF108",
        f"workers that live but do not get to work: {told}",
        mending({worker.status for worker in bad}),
    )
