"""Metrics of your own: a class with the methods of `MetricsRecorder`.

Holdfast's own metrics come ready-made: `holdfast.observers.prometheus.PrometheusObserver`.
"""

import asyncio

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from holdfast import Holdfast, RetryPolicy

REGISTRY = CollectorRegistry()
TASKS_CLAIMED = Counter("my_tasks_claimed", "Claimed", ["queue", "step", "kind"], registry=REGISTRY)
TASKS_COMPLETED = Counter("my_tasks_completed", "Completed", ["queue", "step"], registry=REGISTRY)
TASK_DURATION = Histogram("my_task_seconds", "Duration", ["queue", "step"], registry=REGISTRY)
TASKS_FAILED = Counter(
    "my_tasks_failed", "Failed", ["queue", "step", "retrying"], registry=REGISTRY
)
DEAD_LETTERS = Counter("my_dead_letters", "Dead letters", ["queue", "step"], registry=REGISTRY)
LEASE_RENEWALS = Counter("my_lease_renewals", "Renewed leases", registry=REGISTRY)
LEASE_FAILURES = Counter("my_lease_failures", "Leases not renewed", registry=REGISTRY)


class PrometheusMetrics:
    def task_claimed(self, *, queue: str, step_name: str, kind: str) -> None:
        TASKS_CLAIMED.labels(queue=queue, step=step_name, kind=kind).inc()

    def task_completed(self, *, queue: str, step_name: str, kind: str, duration_s: float) -> None:
        TASKS_COMPLETED.labels(queue=queue, step=step_name).inc()
        TASK_DURATION.labels(queue=queue, step=step_name).observe(duration_s)

    def task_failed(
        self, *, queue: str, step_name: str, kind: str, reason: str, retrying: bool
    ) -> None:
        TASKS_FAILED.labels(queue=queue, step=step_name, retrying=retrying).inc()

    def dead_lettered(self, *, queue: str, step_name: str, kind: str, reason: str) -> None:
        DEAD_LETTERS.labels(queue=queue, step=step_name).inc()

    def lease_renewed(self, *, task_id: str, success: bool) -> None:
        if success:
            LEASE_RENEWALS.inc()
        else:
            LEASE_FAILURES.inc()


@Holdfast.durable(name="flip", retry_policy=RetryPolicy(max_attempts=2, initial_delay=0.1))
async def flip(coin: str) -> str:
    if coin == "tails":
        raise ValueError("tails again")
    return coin


async def main() -> str:
    async with Holdfast(metrics=PrometheusMetrics()) as app:
        worker = asyncio.create_task(app.serve(lease_duration="1m", heartbeat_interval="0.1s"))
        for coin in ("heads", "tails"):
            await app.wait_for(await app.dispatch(flip, coin), timeout=30)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return generate_latest(REGISTRY).decode()


if __name__ == "__main__":
    print(asyncio.run(main()))
