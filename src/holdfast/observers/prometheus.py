"""What workers do, for Prometheus. Labels name workers, queues, types and outcomes; never a task.

Counted in plain dictionaries, a batch at a time, and put into Prometheus' shapes when it asks: a
worker that settles tens of thousands of tasks a second does not feel it.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from holdfast.answers import Recovered
from holdfast.clock import Clock, SystemClock
from holdfast.observer import DeadLetter, Ended, Observer, Stuck
from holdfast.tasks.lane import Lane
from holdfast.tasks.lifecycle import Verdict
from holdfast.tasks.task import Claimed, Draft

__all__ = ["PrometheusObserver"]

Facts = Callable[[], Mapping[str, Any]]
_BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


def _lane(task: Claimed) -> Lane:
    return task.lane


def _kind(ended: Ended) -> tuple[Lane, Verdict]:
    return ended.task.lane, ended.settlement.verdict


class Histogram:
    """Seconds in buckets."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        so_far, found = 0, []
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), list(self.counts), strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found


class Histograms(dict[tuple[str, ...], Histogram]):
    def __missing__(self, labels: tuple[str, ...]) -> Histogram:
        return self.setdefault(labels, Histogram())


class PrometheusObserver(Observer, Collector):
    """`Holdfast(observers=[observer])`, and `observer.registry` for whoever exposes it.

    Waiting is counted from the task's making to its first claim, a delay that it asked for
    included, by the clocks of both machines.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, clock: Clock | None = None
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._enqueued: Counter[tuple[str, str]] = Counter()
        self._acquired: Counter[tuple[str, str]] = Counter()
        self._recovered: Counter[tuple[str]] = Counter()
        self._settled: Counter[tuple[str, str, str]] = Counter()
        self._renewals: Counter[tuple[str, str]] = Counter()
        self._fenced: Counter[tuple[str]] = Counter()
        self._stuck: Counter[tuple[str, str]] = Counter()
        self._wait, self._run = Histograms(), Histograms()
        self._recovery = Histograms()
        self._workers: dict[str, Facts] = {}
        self.registry.register(self)

    def for_worker(self, worker: str, facts: Facts) -> Observer:
        with self._lock:
            self._workers[worker] = facts
            self._recovered[worker,] += 0
        return _Ear(self, worker)

    def enqueued(self, drafts: Sequence[Draft]) -> None:
        with self._lock:
            self._enqueued.update((draft.queue, draft.type) for draft in drafts)

    def dead_lettered(self, letters: Sequence[DeadLetter]) -> None:
        with self._lock:
            self._settled.update((str(Verdict.FAILED), one.queue, one.type) for one in letters)

    # ── heard of one worker ──────────────────────────────────────────────────────────────────

    def worker_claimed(self, worker: str, tasks: Sequence[Claimed]) -> None:
        now = self._clock.wall() / 1e6
        with self._lock:
            for lane, batch in groupby(tasks, _lane):  # a claim comes lane by lane
                wait, count = self._wait[lane.queue, lane.type].add, 0
                for task in batch:
                    count += 1
                    id = task.lease.task.int
                    if task.tries == 1 and id >> 76 & 15 == 7:  # UUIDv7: it begins with its time
                        wait(max(0.0, now - (id >> 80) / 1e3))
                self._acquired[worker, lane.queue] += count

    def worker_settled(self, worker: str, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        if refused:
            ended = [end for end in ended if end.task.lease.task not in refused]
        with self._lock:
            if refused:
                self._fenced[worker,] += len(refused)
            for (lane, verdict), batch in groupby(ended, _kind):
                run, count = self._run[lane.queue, lane.type].add, 0
                for end in batch:
                    count += 1
                    if end.seconds:  # what was not started has none
                        run(end.seconds)
                self._settled[verdict.value, lane.queue, lane.type] += count

    def worker_renewed(self, worker: str, result: str, count: int) -> None:
        if count:
            with self._lock:
                self._renewals[worker, result] += count

    def worker_recovered(self, worker: str, tasks: Sequence[Recovered]) -> None:
        with self._lock:
            self._recovered[worker,] += len(tasks)
            for task in tasks:
                self._recovery[()].add(task.late)

    def worker_stuck(self, tasks: Sequence[Stuck]) -> None:
        with self._lock:
            self._stuck.update((task.queue, task.type) for task in tasks)

    # ── asked by Prometheus ──────────────────────────────────────────────────────────────────

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            return [*self._counters(), *self._histograms(), *self._gauges()]

    def _counters(self) -> Iterator[Metric]:
        for name, help, labels, counts in (
            ("tasks_acquired", "Tasks claimed", ("worker_id", "queue"), self._acquired),
            ("tasks_recovered", "Tasks taken back from dead workers", ("worker_id",),
             self._recovered),
            ("holdfast_tasks_enqueued", "Tasks accepted", ("queue", "type"), self._enqueued),
            ("holdfast_tasks_settled", "Attempts by how they ended", ("outcome", "queue", "type"),
             self._settled),
            ("holdfast_lease_renewals", "Leases kept, lost, or not answered for",
             ("worker_id", "result"), self._renewals),
            ("holdfast_lease_fenced_writes", "Late writes that were refused", ("worker_id",),
             self._fenced),
            ("holdfast_tasks_stuck", "Attempts that ran for too long", ("queue", "type"),
             self._stuck),
        ):  # fmt: skip
            counter = CounterMetricFamily(name, help, labels=labels)
            for values, count in counts.items():
                counter.add_metric(values, count)
            yield counter

    def _histograms(self) -> Iterator[Metric]:
        for name, help, labels, found in (
            ("holdfast_task_wait_seconds", "From a task's making to its first claim",
             ("queue", "type"), self._wait),
            ("holdfast_task_run_seconds", "How long attempts ran", ("queue", "type"), self._run),
            ("holdfast_recovery_seconds", "From a lease's end to its recovery", (),
             self._recovery),
        ):  # fmt: skip
            histogram = HistogramMetricFamily(name, help, labels=labels)
            for values, one in found.items():
                histogram.add_metric(values, one.buckets(), one.total)
            yield histogram

    def _gauges(self) -> Iterator[Metric]:
        poll = GaugeMetricFamily(
            "worker_poll_interval_seconds", "Between two looks", labels=["worker_id"]
        )
        leases = GaugeMetricFamily("active_leases_total", "Leases held", labels=["worker_id"])
        slots = GaugeMetricFamily(
            "holdfast_worker_slots",
            "Slots, by whether they are used",
            labels=["worker_id", "state"],
        )
        lag = GaugeMetricFamily(
            "holdfast_worker_loop_lag_seconds", "How late the loop is", labels=["worker_id"]
        )
        for worker, ask in self._workers.items():
            facts = ask()
            if "max_jobs" not in facts or facts.get("state") == "stopped":
                continue
            poll.add_metric([worker], facts["poll_interval"])
            leases.add_metric([worker], facts["active_leases"])
            slots.add_metric([worker, "used"], facts["active_jobs"])
            slots.add_metric([worker, "free"], facts["max_jobs"] - facts["active_jobs"])
            lag.add_metric([worker], facts["loop_lag"])
        yield from (poll, leases, slots, lag)


class _Ear(Observer):
    """One worker's share."""

    def __init__(self, board: PrometheusObserver, worker: str) -> None:
        self._board, self._worker = board, worker

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        self._board.worker_claimed(self._worker, tasks)

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        self._board.worker_settled(self._worker, ended, refused)

    def renewed(self, kept: Sequence[UUID], lost: frozenset[UUID]) -> None:
        self._board.worker_renewed(self._worker, "kept", len(kept))
        self._board.worker_renewed(self._worker, "lost", len(lost))

    def renewal_failed(self, held: Sequence[UUID]) -> None:
        self._board.worker_renewed(self._worker, "failed", len(held))

    def recovered(self, tasks: Sequence[Recovered]) -> None:
        self._board.worker_recovered(self._worker, tasks)

    def dead_lettered(self, letters: Sequence[DeadLetter]) -> None:
        self._board.dead_lettered(letters)

    def stuck(self, tasks: Sequence[Stuck]) -> None:
        self._board.worker_stuck(tasks)
