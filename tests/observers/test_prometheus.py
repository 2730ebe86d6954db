"""What workers do, as Prometheus sees it."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast, TaskFailed
from holdfast.answers import Recovered
from holdfast.ids import new_grant, new_id
from holdfast.observer import Ended, Stuck
from holdfast.observers.prometheus import PrometheusObserver
from holdfast.tasks.lane import Lane
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Claimed, Lease, TaskStatus
from tests.waiting import eventually

LANE = Lane(queue="mail", type="send", version="", tags=(), requires=(), tenant="default")


def scraped(observer: PrometheusObserver) -> dict[str, float]:
    """Each line as its name with its labels in order."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(observer.registry).decode()):
        for one in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(one.labels.items()))
            found[f"{one.name}{{{labels}}}"] = one.value
    return found


def a_task() -> Claimed:
    lease = Lease(new_id(), new_grant(), 1)
    return Claimed(lease=lease, lane=LANE, priority=0, tries=1, payload=b"null")


async def test_a_worker_is_seen_by_the_names_of_the_seeds_and_ours(tmp_path: Path):
    observer = PrometheusObserver()
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db", observers=[observer])
    go = asyncio.Event()

    @app.durable(name="send", queue="mail", max_tries=1)
    async def send(n: int) -> None:
        if n == 0:
            raise OSError
        await go.wait()

    async with app:
        lifecycle = app.create_worker_lifecycle("w1")
        serving = asyncio.create_task(
            app.serve(lifecycle=lifecycle, max_concurrency=4, poll_interval=0.25)
        )
        tasks = await app.dispatch_many([send.call(n) for n in range(3)])
        with pytest.raises(TaskFailed):
            await tasks[0].result(timeout=60)

        async def two_held() -> bool:
            return scraped(observer)["active_leases_total{worker_id=w1}"] == 2

        await eventually(two_held)
        seen = scraped(observer)
        go.set()
        for task in tasks[1:]:
            await task.result(timeout=60)

        async def settled() -> bool:
            seen = scraped(observer)
            return seen["holdfast_task_run_seconds_count{queue=mail,type=send}"] == 3

        await eventually(settled)
        after = scraped(observer)
        text = generate_latest(observer.registry).decode()
        lifecycle.request_drain()
        await serving
    assert seen["tasks_acquired_total{queue=mail,worker_id=w1}"] == 3
    assert seen["tasks_recovered_total{worker_id=w1}"] == 0
    assert seen["worker_poll_interval_seconds{worker_id=w1}"] >= 0.25
    assert seen["holdfast_worker_slots{state=used,worker_id=w1}"] == 2
    assert seen["holdfast_worker_slots{state=free,worker_id=w1}"] == 2
    assert seen["holdfast_worker_loop_lag_seconds{worker_id=w1}"] < 5
    assert seen["holdfast_tasks_enqueued_total{queue=mail,type=send}"] == 3
    assert seen["holdfast_task_wait_seconds_count{queue=mail,type=send}"] == 3
    assert seen["holdfast_task_wait_seconds_sum{queue=mail,type=send}"] < 60
    assert after["holdfast_tasks_settled_total{outcome=failed,queue=mail,type=send}"] == 1
    assert after["holdfast_tasks_settled_total{outcome=done,queue=mail,type=send}"] == 2
    assert not any(str(task.id) in text for task in tasks)
    assert "active_leases_total{worker_id=w1}" not in scraped(observer)  # it is gone


def test_renewals_refusals_recoveries_and_stuck_tasks_are_counted():
    observer = PrometheusObserver()
    ear = observer.for_worker("w", dict)
    good, late = a_task(), a_task()
    done = Settlement(verdict=Verdict.DONE, result=b"1")
    ear.settled([Ended(good, done, 0.3), Ended(late, done, 9.0)], frozenset({late.lease.task}))
    ear.renewed([good.lease.task] * 3, frozenset({late.lease.task}))
    ear.renewal_failed([good.lease.task])
    ear.recovered([Recovered(late.lease, 7, TaskStatus.PENDING, 2.0)])
    ear.stuck([Stuck(task=new_id(), type="t", queue="q", worker="w", seconds=9.0, withdrawn=False)])
    seen = scraped(observer)
    assert seen["holdfast_lease_fenced_writes_total{worker_id=w}"] == 1
    assert seen["holdfast_tasks_settled_total{outcome=done,queue=mail,type=send}"] == 1
    assert seen["holdfast_lease_renewals_total{result=kept,worker_id=w}"] == 3
    assert seen["holdfast_lease_renewals_total{result=lost,worker_id=w}"] == 1
    assert seen["holdfast_lease_renewals_total{result=failed,worker_id=w}"] == 1
    assert seen["tasks_recovered_total{worker_id=w}"] == 1
    assert seen["holdfast_recovery_seconds_bucket{le=1.0}"] == 0
    assert seen["holdfast_recovery_seconds_bucket{le=2.5}"] == 1
    assert seen["holdfast_tasks_stuck_total{queue=q,type=t}"] == 1
    assert seen["holdfast_task_run_seconds_bucket{le=0.1,queue=mail,type=send}"] == 0
    assert seen["holdfast_task_run_seconds_bucket{le=0.5,queue=mail,type=send}"] == 1


def test_the_hot_path_costs_no_more_than_a_few_increments_a_task():
    """Measured against what the library takes for one, on the same machine in the same moment."""
    observer = PrometheusObserver()
    ear = observer.for_worker("w", dict)
    tasks = [a_task() for _ in range(1000)]
    done = Settlement(verdict=Verdict.DONE, result=b"1")
    ended = [Ended(task, done, 0.001) for task in tasks]

    one = Counter("one", "One", registry=CollectorRegistry())

    def seconds(work: Callable[[], object]) -> float:
        began = process_time()
        work()
        return process_time() - began

    def ours() -> None:
        ear.claimed(tasks)
        ear.settled(ended, frozenset())

    def theirs() -> None:
        for _ in tasks:
            one.inc()

    pairs = [(seconds(ours), seconds(theirs)) for _ in range(40)]
    ratio = min(mine for mine, _ in pairs) / min(other for _, other in pairs)
    assert ratio < 10  # from 2 to 4, f"{ratio:.1f} increments a task"


def test_nobody_who_does_not_ask_for_it_imports_the_library():
    probe = "import holdfast, sys; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"False\s*", done.stdout)
