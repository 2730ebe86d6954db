"""Queues, workers, leases, numbers and probes over HTTP."""

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.answers import WorkerRecord
from tests.app.conftest import until
from tests.http.conftest import asking, code
from tests.waiting import eventually

PAY = {"type": "pay", "kwargs": {"order": 1}}
LONG = timedelta(minutes=5)
PAGE = (Path(__file__).parents[2] / "docs/reference/http.md").read_text()
METRICS = PAGE.partition("## Metrics")[2].partition("## Paths")[0]


async def test_a_queue_is_paused_and_resumed_under_its_etag(http):
    await http.post("/v1/tasks", json=PAY)
    seen = await http.get("/v1/queues/money")
    tag = seen.headers["etag"]
    assert (await http.get("/v1/queues/money", headers={"If-None-Match": "*"})).status_code == 304
    await http.post("/v1/tasks", json=PAY)  # its numbers change, its settings do not
    paused = await http.post("/v1/queues/money:pause", headers={"If-Match": tag})
    assert paused.json()["paused"] is True
    stale = await http.post("/v1/queues/money:resume", headers={"If-Match": tag})
    assert (stale.status_code, code(stale)) == (412, "changed_meanwhile")
    assert (await http.get("/v1/queues/money")).json()["paused"] is True
    fresh = {"If-Match": paused.headers["etag"]}
    assert (await http.post("/v1/queues/money:resume", headers=fresh)).json()["paused"] is False


async def test_a_change_of_a_queue_must_say_what_it_saw(http):
    blind = await http.patch("/v1/queues/money", json={"paused": True})
    assert (blind.status_code, code(blind)) == (428, "etag_needed")
    told = await http.patch("/v1/queues/money", json={"paused": True}, headers={"If-Match": "*"})
    assert told.json()["paused"] is True
    why = (await http.get("/v1/queues/money/why")).json()["data"]
    assert why[0]["why"] == "it is paused"


async def test_an_unused_queue_has_zeroes(http):
    queue = (await http.get("/v1/queues/never")).json()
    assert (queue["queue"], queue["pending"], queue["load"]) == ("never", 0, 0)


async def test_an_autoscaler_reads_plain_numbers_at_fixed_paths_also_of_idle_queues(http):
    for path in ("/distributed/stats", "/v1/stats"):
        stats = (await http.get(f"{path}?queues=mail,money")).json()
        for value in ("pending", "claimable", "running", "load", "scheduled", "failed"):
            assert stats["queues"]["mail"][value] == 0
        assert stats["queues"]["mail"]["oldest_pending_age_seconds"] == 0.0
        assert stats["desired_workers"] == {"mail": 0, "money": 0}
        assert stats["workers"] == {"active": 0, "draining": 0, "stale": 0}
    await http.post("/v1/tasks", json=PAY)
    stats = (await http.get("/distributed/stats")).json()
    assert stats["queues"]["money"]["claimable"] == 1
    assert stats["totals"]["pending"] == 1
    assert stats["server_time"]


async def test_recovery_can_be_asked_for_and_looked_at_first(http):
    for path in ("/distributed/recover-orphans", "/v1/recoveries"):
        dry = (await http.post(f"{path}?dry_run=true")).json()
        assert (dry["recovered"], dry["dry_run"]) == (0, True)
        assert (await http.post(path)).json()["task_ids"] == []
    assert (await http.get("/v1/recoveries")).json() == {"data": []}


async def test_what_was_recovered_is_counted_whoever_did_it(app: Holdfast):
    async with asking(app) as http:
        await http.post("/v1/tasks", json=PAY)
        store = (await app.home.client()).store
        lanes = list((await store.lanes()).lanes)
        (held,) = (await store.claim(worker=7, lanes=lanes, want=1, lease=LONG)).tasks
        await store.revoke(held.lease.task, held.lease.fence)  # as if its worker had died
        assert (await http.post("/distributed/recover-orphans")).json()["recovered"] == 1
        stats = (await http.get("/distributed/stats")).json()
        assert stats["recovery"] == {"recovered_total": 1}
        assert "holdfast_tasks_recovered_total 1.0" in (await http.get("/metrics")).text


async def test_a_look_at_what_would_be_recovered_counts_all_of_it(app: Holdfast):
    async with asking(app) as http:
        batch = {"tasks": [PAY] * 501}
        assert (await http.post("/v1/tasks/batch", json=batch)).status_code < 300
        store = (await app.home.client()).store
        lanes, short = list((await store.lanes()).lanes), timedelta(milliseconds=100)
        held = 0
        while held < 501:
            held += len((await store.claim(worker=7, lanes=lanes, want=501, lease=short)).tasks)

        async def all_of_them() -> bool:
            dry = (await http.post("/distributed/recover-orphans?dry_run=true")).json()
            return bool(dry["recovered"] == 501)

        await eventually(all_of_them, 10)


async def test_a_worker_is_shown_with_what_it_holds_now_not_at_its_last_heartbeat(app: Holdfast):
    async with asking(app) as http:
        ids = [(await http.post("/v1/tasks", json=PAY)).json()["id"] for _ in range(3)]
        store = (await app.home.client()).store
        await store.register(WorkerRecord(id=7, name="w-7", slots=2, lease=600.0))
        lanes = list((await store.lanes()).lanes)
        await store.claim(worker=7, lanes=lanes, want=1, lease=LONG)
        await store.claim(worker=8, lanes=lanes, want=1, lease=LONG)
        one = (await http.get("/worker/stats?worker_id=w-7")).json()
        assert (one["active_jobs"], one["utilization"]) == (1, 0.5)
        assert (one["active_job_ids"], one["lease_duration_seconds"]) == (ids[:1], 600)
        assert (await http.get("/v1/workers/w-7")).json()["active"] == 1
        await store.claim(worker=7, lanes=lanes, want=1, lease=LONG)
        stats = (await http.get("/distributed/stats")).json()
        share = stats["by_worker"]["w-7"]
        assert (share["active_jobs"], share["active_leases"], share["max_jobs"]) == (2, 2, 2)
        text = (await http.get("/metrics")).text
        assert 'active_leases_total{worker_id="w-7"} 2.0' in text
        assert 'holdfast_worker_slots{state="used",worker_id="w-7"} 2.0' in text


async def test_replicas_that_share_a_name_are_counted_together(app: Holdfast):
    """As where every container of a service has the same WORKER_ID."""
    async with asking(app) as http:
        store = (await app.home.client()).store
        for id in (7, 8):
            await http.post("/v1/tasks", json=PAY)
            await store.register(WorkerRecord(id=id, name="w", slots=3, tasks_acquired=5))
            lanes = list((await store.lanes()).lanes)
            await store.claim(worker=id, lanes=lanes, want=1, lease=LONG)
        share = (await http.get("/distributed/stats")).json()["by_worker"]["w"]
        assert (share["active_leases"], share["active_jobs"], share["max_jobs"]) == (2, 2, 6)
        assert 'tasks_acquired_total{worker_id="w"} 10.0' in (await http.get("/metrics")).text


async def test_workers_are_seen_by_name_and_drained(app: Holdfast):
    lifecycle = app.create_worker_lifecycle("w-1")
    working = asyncio.create_task(app.serve(lifecycle=lifecycle, max_concurrency=4))
    await lifecycle.wait_until_ready()
    async with asking(app) as http:
        worker = (await http.get("/v1/workers/w-1")).json()
        assert (worker["worker_id"], worker["max_concurrent"]) == ("w-1", 4)
        assert (await http.get(f"/v1/workers/{worker['id']}")).json()["worker_id"] == "w-1"
        (listed,) = (await http.get("/v1/workers")).json()["data"]
        assert listed["worker_id"] == "w-1"
        stats = (await http.get("/worker/stats")).json()
        assert (stats["worker_id"], stats["max_jobs"], stats["active_job_ids"]) == ("w-1", 4, [])
        other = (await http.get("/worker/stats?worker_id=w-1")).json()
        assert other["max_jobs"] == 4
        assert (await http.get("/worker/stats?worker_id=nobody")).status_code == 404
        health = await http.get("/health")
        assert (health.status_code, health.json()["worker_id"]) == (200, "w-1")
        await http.post("/v1/workers/w-1:drain")
        await working
        assert (await http.get("/v1/workers/w-1")).json()["status"] == "stopped"


async def test_what_a_worker_holds_is_a_lease_until_it_is_done(app: Holdfast):
    began, go = asyncio.Event(), asyncio.Event()

    @app.durable(name="slow")
    async def slow() -> None:
        began.set()
        await go.wait()

    lifecycle = app.create_worker_lifecycle("w-1")
    working = asyncio.create_task(app.serve(lifecycle=lifecycle))
    async with asking(app) as http:
        id = (await http.post("/v1/tasks", json={"type": "slow"})).json()["id"]
        await began.wait()
        (lease,) = (await http.get("/v1/leases?worker_id=w-1")).json()["data"]
        assert (lease["task_id"], lease["type"]) == (id, "slow")
        assert lease["seconds_left"] > 0
        assert (await http.get("/v1/leases?expired=true")).json()["data"] == []
        assert (await http.get("/worker/stats")).json()["active_job_ids"] == [id]
        go.set()
        await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
        assert (await http.get("/v1/leases")).json()["data"] == []
    lifecycle.request_drain()
    await working


async def test_health_tells_a_draining_worker_and_an_api_alone(app: Holdfast):
    async with asking(app) as http:
        alone = await http.get("/health")
        assert (alone.status_code, alone.json()["status"]) == (200, "healthy")
        assert alone.json()["checks"]["fleet"] == "0 active, 0 draining, 0 stale"
        for path in ("/livez", "/readyz", "/startupz", "/readyz?verbose"):
            assert (await http.get(path)).status_code == 200
        lifecycle = app.create_worker_lifecycle("w-1")
        starting = await http.get("/health")
        assert (starting.status_code, starting.json()["status"]) == (503, "not_ready")
        lifecycle.request_drain()
        draining = await http.get("/health")
        assert (draining.status_code, draining.json()["status"]) == (503, "draining")
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/livez")).status_code == 200


async def test_a_store_that_is_away_is_told_without_its_address(tmp_path):
    app = Holdfast("postgresql://user:hunter2@127.0.0.1:1/none")
    async with asking(app) as http:
        health = await http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unhealthy")
        assert (await http.get("/startupz")).status_code == 503
        assert (await http.get("/livez")).status_code == 200
        answer = await http.get("/v1/tasks")
        assert (answer.status_code, code(answer)) == (503, "store_unreachable")
        assert answer.headers["retry-after"] == "2"
        assert "hunter2" not in answer.text + health.text
        assert "127.0.0.1" not in answer.text


async def test_prometheus_reads_the_fleet(app: Holdfast):
    lifecycle = app.create_worker_lifecycle("w-1")
    working = asyncio.create_task(app.serve(lifecycle=lifecycle, max_concurrency=4))
    async with asking(app) as http:
        id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
        await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
        answer = await http.get("/metrics")
        found = {family.name: family for family in text_string_to_metric_families(answer.text)}
        for name in ("tasks_acquired", "tasks_recovered", "worker_poll_interval_seconds",
                     "active_leases_total"):  # fmt: skip
            (sample,) = [s for s in found[name].samples if s.name in (name, f"{name}_total")]
            assert sample.labels == {"worker_id": "w-1"}
        assert "tasks_acquired_total" in answer.text
        samples = {sample.name for family in found.values() for sample in family.samples}
        told = set(re.findall(r"`(\w+_\w+)`", METRICS.partition("What attempts did")[0]))
        assert samples == told - {"worker_id"}
        queues = {
            (s.labels["queue"], s.labels["status"]): s.value
            for s in found["holdfast_queue_tasks"].samples
        }
        assert queues["money", "pending"] == 0
        slots = {s.labels["state"]: s.value for s in found["holdfast_worker_slots"].samples}
        assert sum(slots.values()) == 4
        assert id not in answer.text
        wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        exact = await http.get("/metrics", headers=wanted)
        assert exact.headers["content-type"].startswith("application/openmetrics-text")
        assert exact.text.endswith("# EOF\n")
    lifecycle.request_drain()
    await working


async def test_task_types_show_their_arguments(here):
    types = {one["type"]: one for one in (await here.get("/v1/task-types")).json()["data"]}
    assert types["pay"]["doc"] == "Charge an order."
    assert types["pay"]["input_schema"]["required"] == ["order"]


async def test_a_durable_function_is_signalled_and_read(app: Holdfast):
    @app.durable(name="approve")
    async def approve() -> str:
        return str(await Holdfast.wait_for_signal("yes"))

    lifecycle = app.create_worker_lifecycle("w-1")
    working = asyncio.create_task(app.serve(lifecycle=lifecycle))
    async with asking(app) as http:
        id = (await http.post("/v1/tasks", json={"type": "approve"})).json()["id"]

        async def waits() -> bool:
            return bool((await http.get(f"/v1/tasks/{id}")).json()["status"] == "waiting")

        await until(waits)
        sent = await http.post(f"/v1/flows/{id}/signals/yes", json={"payload": "by all means"})
        assert sent.json() == {"sent": True}
        result = await http.get(f"/v1/tasks/{id}/result?wait=50", timeout=60)
        assert result.json()["result"] == "by all means"
        flow = (await http.get(f"/v1/flows/{id}")).json()
        assert flow["task"]["id"] == id
        assert flow["journal"]
        assert json.loads((await http.get(f"/v1/flows/{id}/export")).text)
        late = await http.post(f"/v1/flows/{id}/signals/yes", json={})
        assert (late.status_code, code(late)) == (409, "not_possible")
    lifecycle.request_drain()
    await working


async def test_a_journal_comes_in_pages_with_the_children_of_each(app: Holdfast):
    """Also those that somebody else had asked for before."""

    @app.durable(name="rate", idempotent=True)
    async def rate(day: int) -> int:
        return day

    @app.durable(name="sum")
    async def whole() -> int:
        return sum([await rate(day) for day in range(3)])

    lifecycle = app.create_worker_lifecycle("w-1")
    working = asyncio.create_task(app.serve(lifecycle=lifecycle))
    async with asking(app) as http:
        shared = await app.dispatch(rate, 1)
        task = await app.dispatch(whole)
        assert await task.result(timeout=60) == 3
        path = f"/v1/flows/{task.id}"
        flow = (await http.get(path)).json()
        assert flow["next_after"] is None
        assert len(flow["children"]) == 3
        assert flow["children"][1]["id"] == str(shared.id)
        graph = (await http.get(f"{path}/graph")).json()
        assert [node["task"] for node in graph["nodes"][1:]] == flow["children"]
        journal, children, after = [], [], -1
        while after is not None:
            part = (await http.get(f"{path}?after={after}&limit=2")).json()
            journal += part["journal"]
            children += part["children"]
            after = part["next_after"]
        assert (journal, children) == (flow["journal"], flow["children"])
        for wrong in ("after=-2", "limit=0", "limit=501", "after=x"):
            assert (await http.get(f"{path}?{wrong}")).status_code == 422
    lifecycle.request_drain()
    await working


async def test_a_name_may_hold_a_slash_and_a_colon(http):
    wish = {**PAY, "queue": "eu/mail:fast"}
    await http.post("/v1/tasks", json=wish)
    seen = (await http.get("/v1/queues/eu%2Fmail:fast")).json()
    assert (seen["queue"], seen["pending"]) == ("eu/mail:fast", 1)
    paused = await http.post("/v1/queues/eu%2fmail%3Afast:pause")
    assert paused.json()["paused"] is True
    assert (await http.get("/v1/queues/eu/mail:fast")).status_code == 404
