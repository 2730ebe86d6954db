"""The fleet for Prometheus: what the store says of queues and workers, at the moment of asking.

Counters of single processes (`holdfast_tasks_settled_total`, histograms) are on the workers' own
`/metrics`; the seeds' four names are here for all workers, as they hand them over with their
heartbeats.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.desk.shapes import Stats

__all__ = ["fleet"]

_STATUSES = ("pending", "claimable", "running", "scheduled", "waiting", "failed")


def fleet(stats: Stats) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Fleet(stats))
    return registry


class _Fleet(Collector):
    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._of_workers()
        yield from self._of_queues()
        yield from self._of_all()

    def _of_workers(self) -> Iterator[Metric]:
        by = ["worker_id"]
        acquired = CounterMetricFamily("tasks_acquired", "Tasks claimed", labels=by)
        recovered = CounterMetricFamily(
            "tasks_recovered", "Tasks taken back from dead workers", labels=by
        )
        poll = GaugeMetricFamily("worker_poll_interval_seconds", "Between two looks", labels=by)
        leases = GaugeMetricFamily("active_leases_total", "Leases held", labels=by)
        slots = GaugeMetricFamily(
            "holdfast_worker_slots", "Slots, by whether they are used", labels=[*by, "state"]
        )
        for worker, share in self._stats.by_worker.items():
            acquired.add_metric([worker], share.tasks_acquired_total)
            recovered.add_metric([worker], share.tasks_recovered_total)
            poll.add_metric([worker], share.worker_poll_interval_seconds)
            leases.add_metric([worker], share.active_leases)
            slots.add_metric([worker, "used"], share.active_jobs)
            slots.add_metric([worker, "free"], max(0, share.max_jobs - share.active_jobs))
        yield from (acquired, recovered, poll, leases, slots)

    def _of_queues(self) -> Iterator[Metric]:
        tasks = GaugeMetricFamily(
            "holdfast_queue_tasks", "Tasks by where they stand", labels=["queue", "status"]
        )
        age = GaugeMetricFamily(
            "holdfast_queue_oldest_age_seconds", "How long the oldest waits", labels=["queue"]
        )
        paused = GaugeMetricFamily("holdfast_queue_paused", "1: paused", labels=["queue"])
        wanted = GaugeMetricFamily(
            "holdfast_desired_workers", "Workers that a queue could use", labels=["queue"]
        )
        for queue, numbers in self._stats.queues.items():
            for status in _STATUSES:
                tasks.add_metric([queue, status], getattr(numbers, status))
            age.add_metric([queue], numbers.oldest_pending_age_seconds)
            paused.add_metric([queue], float(numbers.paused))
        for queue, count in self._stats.desired_workers.items():
            wanted.add_metric([queue], count)
        yield from (tasks, age, paused, wanted)

    def _of_all(self) -> Iterator[Metric]:
        workers = GaugeMetricFamily("holdfast_workers", "Workers by state", labels=["state"])
        counts = self._stats.workers
        for state in ("active", "draining", "stale"):
            workers.add_metric([state], getattr(counts, state))
        leases = GaugeMetricFamily("holdfast_leases", "Leases by state", labels=["state"])
        leases.add_metric(["active"], self._stats.leases.active)
        leases.add_metric(["expired"], self._stats.leases.expired)
        recovered = CounterMetricFamily(
            "holdfast_tasks_recovered", "Taken back from dead workers, by whoever did it"
        )
        recovered.add_metric([], self._stats.recovery.recovered_total)
        yield from (workers, leases, recovered)
