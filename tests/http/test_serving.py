"""The API as a process of its own, on a real socket."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.http.patient import Patient
from tests.cli.shell import SRC, WITHIN, Shell, shell_in
from tests.http.conftest import KEY


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with shell_in(tmp_path) as found:
        yield found


def address(line: str) -> str:
    found = re.search(r"http://\S+?(?=,)", line)
    assert found
    return found[0]


def connected(base: str) -> socket.socket:
    url = httpx.URL(base)
    assert url.port
    return socket.create_connection((url.host, url.port), timeout=WITHIN)


def test_it_serves_until_it_is_told_to_end(shell: Shell):
    api = shell.start("api", "--app", "shop:app", "--port", "0")
    base = address(api.line("api is ready"))
    with httpx.Client(base_url=base) as http:
        assert http.get("/readyz").status_code == 200
        assert http.get("/v1/task-types").json()["data"]
        assert http.head("/v1/tasks").headers["content-type"] == "application/json"
        assert "server" not in http.get("/livez").headers
        with http.stream("GET", "/v1/events") as stream:  # which does not hold it up
            assert next(stream.iter_raw()).startswith(b"retry:")
            api.send(signal.SIGTERM)
            assert api.end() == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_a_key_it_refuses_to_listen_to_others(shell: Shell, host):
    said = shell.fails(6, "api", "--host", host, "--port", "0")
    assert "HOLDFAST_API_KEY" in said


def test_with_a_key_it_listens_to_others_and_never_shows_the_key(shell: Shell):
    api = shell.start("api", "--host", "0.0.0.0", "--port", "0", "--log-level", "debug",
                      HOLDFAST_API_KEY=KEY)  # fmt: skip
    line = api.line("api is ready")
    base = address(line).replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(f"{base}/v1/tasks").status_code == 401
    headers = {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(f"{base}/v1/tasks", headers=headers).status_code == 200
    api.send(signal.SIGINT)
    assert api.end() == 0
    assert KEY not in api.said + line


def test_a_forwarded_address_is_not_believed(shell: Shell):
    base = address(shell.start("api", "--port", "0").line("api is ready"))
    headers = {"Host": "evil.example", "X-Forwarded-Host": "localhost"}
    assert httpx.get(f"{base}/v1/tasks", headers=headers).status_code == 403


def test_huge_headers_are_refused_and_the_rest_is_served(shell: Shell):
    base = address(shell.start("api", "--port", "0").line("api is ready"))
    for head in (b"X: " + b"x" * 100_000, b"X: y\r\n" * 20_000, b"X" * 100_000):
        with connected(base) as wire:
            wire.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
            try:
                wire.sendall(head)
                assert b" 400 " in wire.recv(1000)
            except (ConnectionResetError, BrokenPipeError):
                pass
    assert httpx.get(f"{base}/livez").status_code == 200


def test_a_client_that_is_too_slow_is_put_out(tmp_path: Path):
    code = (
        "import asyncio; from holdfast import Holdfast\n"
        "from holdfast.http.patient import Patient; Patient.SECONDS = 0.3\n"
        "from holdfast.http import serving\n"
        "asyncio.run(serving.serve(Holdfast('sqlite:///a.db'), port=0,"
        " ready=lambda a: print(a, flush=True)))\n"
    )
    assert Patient.SECONDS < 60
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        base = process.stdout.readline().strip()
        with connected(base) as silent, connected(base) as slow, connected(base) as second:
            slow.sendall(b"GET /livez HTTP/1.1\r\nHost: lo")
            second.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in second.recv(1000)
            second.sendall(b"GET /live")
            for wire in (silent, slow, second):
                with contextlib.suppress(ConnectionResetError):
                    while wire.recv(1000):
                        pass
        assert httpx.get(f"{base}/livez").status_code == 200
        process.terminate()
        assert process.wait(WITHIN) == 0
