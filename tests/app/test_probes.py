"""A worker's health, told from outside of its loop."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.app import probes
from holdfast.app.probes import _Probes
from holdfast.errors import InvalidInput
from holdfast.work.status import WorkerLifecycle, WorkerState


def fetch(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def asked(port: int | None, path: str) -> tuple[int, Any]:
    status, text = await asyncio.to_thread(fetch, port, path)
    return status, text if path == "/metrics" else json.loads(text)


async def test_a_worker_tells_its_health_and_numbers(tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/a.db") as app:

        @app.durable(name="pay")
        async def pay() -> None: ...

        lifecycle = app.create_worker_lifecycle("w-1")
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, health_port=0))
        await lifecycle.wait_until_ready()
        port = lifecycle.probes
        for path in ("/livez", "/readyz", "/startupz"):
            assert (await asked(port, path))[0] == 200
        assert await asked(port, "/health") == (
            200,
            {
                "status": "healthy",
                "worker_id": "w-1",
                "workers": ["w-1"],
                "checks": {"worker": "ready"},
            },
        )
        await (await app.dispatch(pay)).result(timeout=60)
        text = (await asked(port, "/metrics"))[1]
        assert 'tasks_acquired_total{queue="default",worker_id="w-1"} 1.0' in text
        assert 'holdfast_worker_slots{state="free",worker_id="w-1"}' in text
        status, stats = await asked(port, "/worker/stats")
        assert (status, stats["worker_id"], stats["is_running"]) == (200, "w-1", True)
        assert stats["lease_duration_seconds"] == 300
        assert (await asked(port, "/v1/tasks"))[0] == 404
        lifecycle.request_drain()
        await working
        with pytest.raises(urllib.error.URLError):
            fetch(port, "/livez")


async def test_a_wedged_loop_is_seen_by_livez_and_health(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "WEDGED_AFTER", 0.5)
    blocked, go = threading.Event(), threading.Event()
    async with Holdfast(f"sqlite:///{tmp_path}/a.db") as app:

        @app.durable(name="block")
        async def block() -> None:
            blocked.set()
            go.wait(60)

        lifecycle = app.create_worker_lifecycle("w-1")
        found: list[tuple[int, str]] = []

        def watch() -> None:
            """In a thread: this test's own loop is the one that is blocked."""
            blocked.wait(60)
            while not go.is_set():
                found.append(fetch(lifecycle.probes, "/livez"))
                if found[-1][0] == 503:
                    go.set()

        watching = threading.Thread(target=watch)
        watching.start()
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, health_port=0))
        task = await app.dispatch(block)
        await task.result(timeout=90)
        watching.join(60)
        assert found[-1] == (503, '{"status": "wedged"}')
        async with asyncio.timeout(60):
            while (await asked(lifecycle.probes, "/livez"))[0] != 200:
                await asyncio.sleep(0.05)
        lifecycle.request_drain()
        await working


def test_starting_and_draining_are_not_ready():
    lifecycle = WorkerLifecycle("w-1")
    table = _Probes(lifecycle.overview, None, None)

    def status(path: str) -> int:
        return table.answer(path, {}, "127.0.0.1")[0]

    assert [status(p) for p in ("/livez", "/startupz", "/readyz", "/health")] == [
        200, 503, 503, 503,
    ]  # fmt: skip
    lifecycle.move(WorkerState.DRAINING)
    assert [status(p) for p in ("/livez", "/startupz", "/readyz", "/health")] == [
        200, 200, 503, 503,
    ]  # fmt: skip
    assert status("/metrics") == status("/worker/stats") == 404


def test_what_a_worker_does_is_shown_to_this_machine_or_for_a_key():
    facts = {
        "name": "w", "state": "ready", "worker_id": "w", "active_jobs": 0, "max_jobs": 1,
        "utilization": 0.0, "active_job_ids": [], "tasks_acquired": 0, "tasks_recovered": 0,
        "poll_interval": 1.0, "loop_lag": 0.0, "lease_duration": 1.0, "heartbeat_interval": 1.0,
    }  # fmt: skip
    for key, given, wanted in [
        (None, None, 403), (None, "x", 403), (None, "", 403), ("k" * 16, "x", 403),
        ("k" * 16, "k" * 16, 200),
    ]:  # fmt: skip
        headers = {} if given is None else {"Authorization": f"Bearer {given}"}
        table = _Probes(lambda: facts, None, key)
        assert table.answer("/worker/stats", headers, "192.0.2.1")[0] == wanted
        assert table.answer("/worker/stats", {}, "::1")[0] == 200


async def test_a_port_that_is_taken_is_told(tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/a.db") as app:
        lifecycle = app.create_worker_lifecycle("w-1")
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, health_port=0))
        await lifecycle.wait_until_ready()
        with pytest.raises(InvalidInput, match="--health-port"):
            await app.serve(worker_id="w-2", health_port=lifecycle.probes)
        lifecycle.request_drain()
        await working
