"""The example of a worker over HTTP, as a process of its own, killed in the midst of its work."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.shell import WITHIN, Shell, shell_in, until
from tests.http.conftest import KEY
from tests.http.test_serving import address

EXAMPLES = Path(__file__).parents[2] / "examples"
# The example with a function that says when it began, and ends when it is let go.
HOLDING = """
import os, time
from pathlib import Path
import http_worker

def hold(name):
    Path(f"{name}.{os.getpid()}").touch()
    while not Path(f"{name}.go").exists():
        time.sleep(0.01)
    return os.getpid()

http_worker.FUNCTIONS["hold"] = hold
http_worker.main()
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "postgres"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    environ = {"HOLDFAST_API_KEY": KEY}
    if request.param == "postgres":
        fresh = request.getfixturevalue("fresh_database")
        environ["HOLDFAST_STORE"] = fresh(request.getfixturevalue("postgres_current"))
    with shell_in(tmp_path, **environ) as found:
        yield found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def begin(base: str) -> "subprocess.Popen[str]":
        environ = {"HOLDFAST_API": base, "HOLDFAST_API_KEY": KEY, "LEASE": "2"}
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDING],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environ | {"PYTHONPATH": str(EXAMPLES), "PATH": os.environ["PATH"]},
        )
        begun.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def test_what_a_killed_worker_held_is_finished_by_another(shell: Shell, start: Start):
    base = address(shell.start("api", "--port", "0").line("api is ready"))
    with httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {KEY}"}, timeout=WITHIN
    ) as http:
        words = {"type": "count_words", "args": ["to be or not to be"], "allow_unknown": True}
        first = start(base)
        id = http.post("/v1/tasks", json=words).json()["id"]
        assert http.get(f"/v1/tasks/{id}/result?wait=50").json()["result"] == 6
        held = {"type": "hold", "args": ["x"], "allow_unknown": True}
        id = http.post("/v1/tasks", json=held).json()["id"]
        until(lambda: shell.has(f"x.{first.pid}"), "the first one begins")
        first.send_signal(signal.SIGKILL)
        second = start(base)
        until(lambda: shell.has(f"x.{second.pid}"), "the second one takes over")
        shell.let_go("x")
        result = http.get(f"/v1/tasks/{id}/result?wait=50").json()
        assert (result["status"], result["result"]) == ("done", second.pid)
        attempts = http.get(f"/v1/tasks/{id}/attempts").json()["data"]
        assert [one["ended"] for one in attempts] == ["lost", "done"]
        assert [one["worker_id"] for one in attempts] == [f"http-{p.pid}" for p in (first, second)]


def test_a_worker_that_stood_still_finds_its_lease_lost(shell: Shell, start: Start):
    base = address(shell.start("api", "--port", "0").line("api is ready"))
    with httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {KEY}"}, timeout=WITHIN
    ) as http:
        first = start(base)
        held = {"type": "hold", "args": ["x"], "allow_unknown": True}
        id = http.post("/v1/tasks", json=held).json()["id"]
        until(lambda: shell.has(f"x.{first.pid}"), "the first one begins")
        first.send_signal(signal.SIGSTOP)
        second = start(base)
        until(lambda: shell.has(f"x.{second.pid}"), "the second one takes over")
        shell.let_go("x")
        assert http.get(f"/v1/tasks/{id}/result?wait=50").json()["result"] == second.pid
        first.send_signal(signal.SIGCONT)
        assert first.stdout
        assert first.stdout.readline() == f"{id} was lost\n"
        assert http.get(f"/v1/tasks/{id}/result").json()["result"] == second.pid
