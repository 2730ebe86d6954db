"""`holdfast demo`, in a pipe and on a terminal, and by hand in two of them."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from holdfast.cli.demo.summary import Findings
from tests.cli.shell import Running, Shell, shell_in, until

Shown = tuple[int, str]


def in_a_pipe(shell: Shell) -> Shown:
    done = shell.run("demo")
    return done.returncode, done.stdout + done.stderr


def on_a_terminal(shell: Shell) -> Shown:
    ours, theirs = pty.openpty()
    environ = shell.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "50", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo"],
        cwd=shell.folder,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        return process.wait(60), seen.decode()


def _read(ours: int) -> bytes:
    try:
        return os.read(ours, 65536)
    except OSError:  # so does Linux say that the other end is closed
        return b""


@pytest.fixture(scope="module")
def shows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shown]]:
    """Both at the same time."""
    folder: Path = tmp_path_factory.mktemp("demo")
    with shell_in(folder) as shell, ThreadPoolExecutor() as threads:
        piped = threads.submit(in_a_pipe, shell)
        drawn = threads.submit(on_a_terminal, shell)
        yield {"pipe": piped.result(), "terminal": drawn.result()}
        assert [path.name for path in folder.iterdir()] == ["shop.py"]


def test_the_demo_in_a_pipe_tells_line_by_line_of_a_crash_that_was_recovered(shows):
    code, text = shows["pipe"]
    assert code == 0, text
    assert "\x1b" not in text
    assert re.search(r"kill -9 worker-1, with [23] jobs in its hands", text)
    # Where the machine is slow it is killed before it has told of any progress.
    assert re.search(r"job +\d+ runs on worker-[23]: taken over from worker-1(, at \d+ %)?", text)
    assert "wakes up and writes its result: refused" in text
    counts = [re.search(rf"{what} +│ (\d+) ", text) for what in ("accepted", "done, each once")]
    accepted, done = (int(found[1]) if found else 0 for found in counts)
    assert done == accepted >= 15
    assert text.count("\nkept ") == 4
    assert text.endswith("nothing was lost, nothing ended twice\n")


def test_the_demo_on_a_terminal_draws_bars_and_no_colours_where_none_are_wanted(shows):
    code, text = shows["terminal"]
    assert code == 0, text
    assert "━━━" in text
    assert "taken over" in text
    assert "nothing was lost, nothing ended twice" in text
    assert not re.search(r"\x1b\[[\d;]*(3[0-7]|9[0-7])m", text)


GOOD = Findings(
    accepted=15, done=15, ended_twice=0, by_worker={}, held=3, recovered=3, slowest=2.0,
    refused=1, too_late=False,
)  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [
        {"done": 14},
        {"ended_twice": 1},
        {"held": 0, "recovered": 0},
        {"recovered": 2},
        {"refused": 0},
        {"too_late": True},
    ],
)
def test_a_promise_that_was_not_seen_is_told_as_broken(fault):
    assert all(kept for _, kept in GOOD.promises())
    assert [kept for _, kept in msgspec.structs.replace(GOOD, **fault).promises()].count(False) == 1


def wrote(worker: Running, text: str) -> bool:
    return text in worker.said


def test_by_hand_a_worker_that_was_killed_goes_on_where_it_was(shell: Shell):
    finished = True
    while finished:  # where the job was quicker than we could look, another one
        first = shell.start("demo", "worker", "--lease", "1s")
        first.line("is ready")
        done = shell.run("demo", "create-jobs", "1", "--seconds", "2")
        assert "holdfast demo worker" in done.stderr
        until(partial(wrote, first, "page 3 of 10"), "the job is under way")
        first.send(signal.SIGKILL)
        first.process.wait()
        finished = "job 1 is done" in first.said
    second = shell.start("demo", "worker", "--lease", "1s")
    until(lambda: "job 1 is done" in second.said, "the job is done")
    assert re.search(r"job 1 goes on at ([3-9]|10)0 %", second.said)
    assert "page 1 of 10" not in second.said
    second.send(signal.SIGINT)
    assert second.end() == 0
    assert shell.has("holdfast-demo.db")
