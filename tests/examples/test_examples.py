"""Every example runs, on both databases, and shows what it says."""

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from holdfast import Holdfast, config
from tests.examples.conftest import EXAMPLES, Start, example
from tests.waiting import eventually


async def ended(process: Any, seconds: float = 60) -> str:
    """What it printed."""
    text, _ = await asyncio.to_thread(process.communicate, timeout=seconds)
    return str(text)


async def is_ready(app: Holdfast, count: int = 1) -> bool:
    workers = await (await app.home.client()).store.workers()
    return len([w for w in workers if w.status == "ready"]) == count


async def test_production_worker(postgres_current, fresh_database, valkey, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", fresh_database(postgres_current))
    monkeypatch.setenv("REDIS_URL", valkey.url)
    production = example("production_worker")
    worker = asyncio.create_task(production.run_production_worker())
    async with Holdfast() as app:
        task = await app.dispatch(production.charge, 7)
        assert await task.result(timeout=60) == "order 7 is paid"
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.usefixtures("on_store")
async def test_routing_by_queue(capsys):
    await example("routing_by_queue").main()
    assert capsys.readouterr().out.splitlines() == [
        "critical_operation ran on critical-worker",
        "background_job ran on background-worker",
        "still waiting: 1 in the default queue",
        "normal_task ran on general-worker",
    ]


@pytest.mark.usefixtures("on_store")
async def test_routing_by_tag(capsys):
    await example("routing_by_tag").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "charge_customer ran on billing-worker"
    assert re.fullmatch("send_invoice ran on (billing|notification)-worker", lines[1])
    assert lines[2] == "send_alert ran on notification-worker"


@pytest.mark.usefixtures("on_store")
async def test_managed_worker(capsys):
    await example("managed_worker").managed_worker()
    assert capsys.readouterr().out.splitlines() == [
        "Worker is ready to accept tasks",
        "Draining - finishing in-flight tasks",
        "Worker stopped cleanly",
    ]


@pytest.mark.usefixtures("on_store")
async def test_health():
    health = example("health")
    began, go = asyncio.Event(), asyncio.Event()

    @health.app.durable
    async def last() -> None:
        began.set()
        await go.wait()

    async def drains() -> bool:
        return bool(health.lifecycle.state == "draining")

    assert await got(health.api) == (503, "not_ready")
    async with health.api.router.lifespan_context(health.api):
        await health.lifecycle.wait_until_ready()
        assert await got(health.api) == (200, "healthy")
        await health.app.dispatch(last)
        await began.wait()
        health.app.request_worker_drain(health.lifecycle)
        assert await got(health.api) == (503, "draining")
        await eventually(drains)
        assert await got(health.api) == (503, "draining")
        go.set()
    assert await got(health.api) == (503, "not_ready")


async def got(api: Any) -> tuple[int, str]:
    """The answer to GET /health, without a server in between."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/health", "headers": [], "query_string": b"",
    }  # fmt: skip
    await api(scope, None, send)
    return sent[0]["status"], json.loads(sent[1]["body"])["status"]


async def test_kubernetes_worker(on_store: str, start: Start):
    worker = start("kubernetes_worker.py", HOSTNAME="pod-1")
    assert worker.stdout
    assert await asyncio.to_thread(worker.stdout.readline) == "pod-1 is ready\n"
    async with Holdfast(on_store) as app:
        slow = example("kubernetes_worker").slow
        tasks = [await app.dispatch(slow, 0.5)]

        async def works() -> bool:
            if (await tasks[-1].state()).status == "done":  # before anybody could look
                tasks.append(await app.dispatch(slow, 0.5))
            return bool(await app.active_leases())

        await eventually(works)
        worker.send_signal(signal.SIGTERM)
        assert await ended(worker) == "pod-1 is stopped\n"
        assert worker.returncode == 0
        assert {await task.result(timeout=60) for task in tasks} == {"finished"}


async def test_workers_of_one_script(on_store: str, start: Start):
    names = ("worker-1", "worker-2")
    workers = [
        start("worker.py", f"--worker-id={name}", HOLDFAST_CONCURRENCY="1") for name in names
    ]
    async with Holdfast(on_store) as app:
        await eventually(lambda: is_ready(app, 2), 60)
        greet, said = example("worker").greet, set[str]()

        async def both_have_answered() -> bool:
            tasks = await app.dispatch_many([greet.call("Ada") for _ in range(6)])
            said.update([await task.result(timeout=60) for task in tasks])
            return len(said) == 2

        await eventually(both_have_answered)
    assert said == {f"Hello Ada, from {name}" for name in names}
    for worker in workers:
        worker.terminate()
    assert [(await ended(worker), worker.returncode) for worker in workers] == [("", 0)] * 2


@pytest.mark.usefixtures("on_store")
async def test_queue_monitor(capsys):
    routing, monitor = example("routing_by_queue"), example("queue_monitor")
    async with Holdfast() as app:
        await app.dispatch_many([routing.critical_operation.call() for _ in range(3)])
        await app.dispatch(routing.background_job)
        watching = asyncio.create_task(monitor.monitor_queues(app, every=60))
        lines: list[str] = []

        async def four() -> bool:
            lines.extend(capsys.readouterr().out.splitlines())
            return len(lines) >= 4

        await eventually(four)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert lines == [
        "Total pending: 4",
        "Queue default: 0 pending",
        "Queue critical: 3 pending",
        "Queue background: 1 pending",
    ]


async def test_structured_logs(on_store: str, start: Start):
    text = await ended(start("structured_logs.py"))
    (line,) = [line for line in text.splitlines() if "inside of a task" in line]
    found = re.search(r"INFO \[([0-9a-f-]{36})\] inside of a task$", line)
    assert found
    async with Holdfast(on_store) as app:
        assert (await app.state_of(found[1])).type == "structured_logs:work"
    assert re.search(r"INFO \[\] worker .* is ready", text)


@pytest.mark.usefixtures("on_store")
async def test_prometheus_recorder():
    text = await example("prometheus_recorder").main()
    assert 'my_tasks_claimed_total{kind="task",queue="default",step="flip"} 3.0' in text
    assert 'my_tasks_completed_total{queue="default",step="flip"} 1.0' in text
    assert 'my_tasks_failed_total{queue="default",retrying="True",step="flip"} 1.0' in text
    assert 'my_tasks_failed_total{queue="default",retrying="False",step="flip"} 1.0' in text
    assert 'my_dead_letters_total{queue="default",step="flip"} 1.0' in text


@pytest.mark.usefixtures("on_store")
async def test_my_worker(capsys):
    await example("my_worker").main()
    said = capsys.readouterr().out
    assert "Processing job: my-job-123 of order order-456" in said
    assert "'workerId': 'my-worker-1'" in said
    assert said.endswith("Active leases: 0\nReset 0 expired leases\n")


def statements(file: str) -> Iterator[str]:
    yield from (one for one in (EXAMPLES / file).read_text().split(";") if one.strip())


async def test_the_sql_of_the_seeds_answers_as_it_is_written(url: str):
    async with Holdfast(url) as app:
        store = (await app.home.client()).store
        answers = []
        await app.dispatch(example("worker").greet, "Ada")
        lanes = list((await store.lanes()).lanes)
        await store.claim(worker=7, lanes=lanes, want=1, lease=timedelta(minutes=5))
        async with store.transaction() as conn:
            for file in ("monitoring.sql", "troubleshooting.sql"):
                for sql in statements(file):
                    answers.append(await (conn.execute if "sqlite" in url else conn.fetch)(sql))
    workers, tries, stale, available, locked, expired, failed = answers
    assert [tuple(row) for row in workers] == [("7", 1)]
    assert [tuple(row)[2:] for row in tries] == [(1, None, "running")]
    assert len(locked) == 1
    assert [*stale, *available, *expired, *failed] == []


def test_the_environment_of_the_seeds_is_read():
    lines = (EXAMPLES / "worker.env").read_text().splitlines()
    given = dict(line.split("=") for line in lines if "=" in line)
    read = config.read(given)
    assert read.lease
    assert read.recovery_interval
    assert (read.lease.total_seconds(), read.recovery_interval.total_seconds()) == (600, 30)
    assert (read.poll_min, read.poll_max, read.max_tries) == (0.2, 10, 5)
    assert (read.worker_id, read.concurrency) == ("worker-1", 3)


async def test_render(on_store: str, start: Start):
    """Two workers share the charts; one is killed; its charts are rendered by the other."""
    names = ("worker-1", "worker-2")
    short = {"HOLDFAST_LEASE": "1s"}
    workers = [start("render/render.py", "worker", name, **short) for name in names]
    async with Holdfast(on_store) as app:
        await eventually(lambda: is_ready(app, 2), 60)
        charts = 0

        async def held() -> "Counter[str | None]":
            return Counter(lease.worker_name for lease in await app.active_leases())

        async def one_is_stopped_at_work() -> bool:
            """While both work. It stands still while somebody looks, so that it can end nothing;
            where all has ended before anybody looked, there are more charts."""
            nonlocal charts
            both = await held()
            if not both and not await app.queue_depth("render"):
                charts += len((await ended(start("render/render.py", "submit", "12"))).split())
            if min(both["worker-1"], both["worker-2"]) < 2:
                return False
            workers[0].send_signal(signal.SIGSTOP)
            if (await held())["worker-1"] > 1:
                return True
            workers[0].send_signal(signal.SIGCONT)
            return False

        await eventually(one_is_stopped_at_work)
        workers[0].kill()
        lines = (await ended(start("render/render.py", "watch"))).splitlines()
        assert re.fullmatch(rf"waiting 0, held .*, done {charts}", lines[-1])
        store = (await app.home.client()).store
        ends: Counter[str | None] = Counter()
        for task in (await app.list_tasks(queue="render")).tasks:
            ends.update(attempt.ended for attempt in await store.attempts(task.id))
    assert ends["done"] == charts > 0
    assert ends["lost"] > 0


async def test_render_by_http(on_store: str, start: Start):
    """Charts are asked for by POST /render; one worker is killed, and the page of the example says
    where to see it: each of its addresses answers."""
    page = (EXAMPLES / "render/README.md").read_text()
    short = {"HOLDFAST_LEASE": "1s"}
    workers = [start("render/render.py", "worker", name, **short) for name in ("w1", "w2")]
    base = await address(start("render/api.py", PORT="0"))
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        asked: list[str] = []

        async def both_work() -> bool:
            stats = (await http.get("/distributed/stats")).json()
            shares = {name: one["active_leases"] for name, one in stats["by_worker"].items()}
            if len(shares) == 2 and not stats["totals"]["load"]:
                answer = await http.post("/render", json={"charts": 24})
                assert answer.status_code == 202
                asked.extend(answer.json()["ids"])
            return bool(min(shares.get("w1", 0), shares.get("w2", 0)) > 1)

        await eventually(both_work, 60)
        workers[0].kill()

        async def all_done() -> bool:
            done = (await http.get("/v1/tasks?status=done&limit=500")).json()["data"]
            return {task["id"] for task in done} == set(asked)

        await eventually(all_done, 60)
        lost = (await http.get("/v1/recoveries")).json()["data"]
        assert {one["worker_id"] for one in lost} == {"w1"}
        assert {one["task_id"] for one in lost} <= set(asked)
        for path in re.findall(r"curl -s localhost:8000(/[\w/-]+)  +#", page):
            assert (await http.get(path)).status_code == 200, path
        assert (await http.post("/render", json={"charts": 0})).status_code == 422
    workers[1].send_signal(signal.SIGINT)
    said = await ended(workers[1])
    assert "recovered" in said
    assert re.search(r"worker w2 claimed \d+ tasks: \d+ x render:render|claimed task", said)


async def address(server: Any) -> str:
    """Where it says that it listens."""
    while line := await asyncio.to_thread(server.stdout.readline):
        if found := re.search(r"running on (http://[\d.:]+)", line):
            return found[1]
    raise AssertionError("it ended before it listened")


@pytest.mark.parametrize("script", ["orders.py", "render/render.py", "wordcount.py"])
@pytest.mark.parametrize("arguments", [(), ("dance", "now"), ("place", "some")], ids=str)
async def test_who_calls_an_example_wrongly_is_told_how(start: Start, script, arguments):
    process = start(script, *arguments)
    said = await ended(process)
    assert process.returncode == 1
    assert f"\npython {script.rpartition('/')[2]} " in said
    assert "Traceback" not in said
