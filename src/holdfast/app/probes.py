"""Health and metrics of a worker's process, on a port and in threads of their own: what the event
loop does, or no longer does, is seen from outside of it. Never asks the store."""

import contextlib
import hmac
import ipaddress
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import InvalidInput
from holdfast.observer import Observer
from holdfast.work.status import WorkerLifecycle

__all__ = ["probing", "worker_stats"]

Overview = Callable[[], dict[str, Any]]
Answer = tuple[int, str, bytes]
WEDGED_AFTER = 10.0  # seconds by which the loop is late
_THREADS = 4
_PATIENCE = 5.0  # seconds for a client to say what it wants


@contextlib.contextmanager
def probing(
    lifecycle: WorkerLifecycle, host: str, port: int | None, api_key: str | None
) -> Iterator[list[Observer]]:
    """Inside the block the probes are served; yields who must hear of what the worker does."""
    if port is None:
        yield []
        return
    observers, metrics = _metrics()
    try:
        server = _Server((host, port), _Probes(lifecycle.overview, metrics, api_key))
    except OSError as error:
        raise InvalidInput(
            f"probes cannot be served on {host}:{port}: {error.strerror}; choose another "
            "--health-port"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="holdfast-probes", daemon=True)
    thread.start()
    lifecycle.probes = server.server_address[1]
    try:
        yield observers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _metrics() -> tuple[list[Observer], Callable[[str], tuple[str, bytes]] | None]:
    try:
        from prometheus_client.exposition import choose_encoder
    except ImportError:
        return [], None
    from holdfast.observers.prometheus import PrometheusObserver

    observer = PrometheusObserver()

    def render(accept: str) -> tuple[str, bytes]:
        encode, media = choose_encoder(accept)
        return media, encode(observer.registry)

    return [observer], render


class _Probes:
    """What each path answers."""

    def __init__(
        self,
        overview: Overview,
        metrics: Callable[[str], tuple[str, bytes]] | None,
        api_key: str | None,
    ) -> None:
        self._overview, self._metrics, self._key = overview, metrics, api_key

    def answer(self, path: str, headers: Mapping[str, str], client: str) -> Answer:
        facts = self._overview()
        match path:
            case "/livez":
                lag = facts.get("loop_lag", 0.0)
                return _said(lag < WEDGED_AFTER, "alive", "wedged")
            case "/startupz":
                return _said(facts["state"] != "starting", "started", "starting")
            case "/readyz":
                return _said(_status(facts) == "healthy", "ready", _status(facts))
            case "/health":
                return _health(facts)
            case "/metrics" if self._metrics:
                media, text = self._metrics(headers.get("Accept", ""))
                return 200, media, text
            case "/worker/stats" if "max_jobs" in facts:
                if not self._may_see(headers, client):
                    return _json(403, {"status": "closed"})
                return _json(200, worker_stats(facts))
            case _:
                return _json(404, {"status": "not_found"})

    def _may_see(self, headers: Mapping[str, str], client: str) -> bool:
        """Probes and metrics are for everybody; who works on what is for this machine, or a key."""
        if ipaddress.ip_address(client.partition("%")[0]).is_loopback:
            return True
        given = headers.get("Authorization", "").removeprefix("Bearer ").encode()
        return self._key is not None and hmac.compare_digest(given, self._key.encode())


def _status(facts: Mapping[str, Any]) -> str:
    match facts["state"], facts.get("status"):
        case "ready", "ready":
            return "healthy"
        case "ready", _:
            return "unhealthy"
        case "draining", _:
            return "draining"
        case _:
            return "not_ready"


def _health(facts: Mapping[str, Any]) -> Answer:
    status = _status(facts)
    name = facts.get("worker_id") or facts["name"]
    checks = {"worker": facts.get("status", facts["state"])}
    body = {"status": status, "worker_id": name, "workers": [name], "checks": checks}
    return _json(200 if status == "healthy" else 503, body)


def worker_stats(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A worker as `/worker/stats` shows it, here and on the API."""
    return {
        "worker_id": facts["worker_id"],
        "state": facts["state"],
        "is_running": facts["state"] in ("ready", "draining"),
        "active_jobs": facts["active_jobs"],
        "max_jobs": facts["max_jobs"],
        "utilization": facts["utilization"],
        "active_job_ids": facts["active_job_ids"],
        "lease_duration_seconds": facts["lease_duration"],
        "heartbeat_interval_seconds": facts["heartbeat_interval"],
        "tasks_acquired_total": facts["tasks_acquired"],
        "tasks_recovered_total": facts["tasks_recovered"],
        "poll_interval_seconds": facts["poll_interval"],
        "loop_lag_seconds": facts["loop_lag"],
    }


def _said(well: bool, good: str, bad: str) -> Answer:
    return _json(200 if well else 503, {"status": good if well else bad})


def _json(status: int, body: Any) -> Answer:
    return status, "application/json", json.dumps(body).encode()


class _Server(HTTPServer):
    """A few threads for all who ask: whoever is slow holds up one of them, for a while."""

    request_queue_size = 64

    def __init__(self, address: tuple[str, int], probes: _Probes) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-probe")
        self.probes = probes
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._pool.submit(self._process, request, client_address)

    def _process(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # it has gone away
        finally:
            self.shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE
    server_version, sys_version = "holdfast", ""

    def do_GET(self) -> None:  # its name in http.server
        path = urlsplit(self.path).path
        client = str(self.client_address[0])
        status, media, body = self.server.probes.answer(path, dict(self.headers), client)
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Who asks every second shall not fill the log."""
