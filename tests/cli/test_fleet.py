"""`holdfast worker --processes`: a parent that keeps so many."""

import asyncio
import os
import re
import signal
import subprocess
import sys

from holdfast.cli.fleet import Fleet
from tests.cli.shell import Running, Shell, until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start(shell: Shell, *flags: str) -> Running:
    fleet = shell.start("worker", "--app", "shop", "--processes", "2", "--worker-id", "w", *flags)
    assert {fleet.line("is ready").split()[1] for _ in range(2)} == {"w-1", "w-2"}
    return fleet


def test_a_child_that_was_killed_is_started_again_and_all_drain_together(shell: Shell):
    fleet = start(shell, "--queues", "default", "--lease", "1m")
    first = re.search(r"worker process 1 has pid (\d+)", fleet.said)
    assert first
    os.kill(int(first[1]), signal.SIGKILL)
    assert fleet.line("is ready").startswith("worker w-1 is ready: queues default")
    assert "SIGKILL" in fleet.said
    assert shell.says("enqueue", "add", "1", "--app", "shop", "--wait") == "1"
    fleet.send(signal.SIGTERM)
    assert fleet.end() == 0
    assert len(fleet.children()) == 3
    assert not any(map(alive, fleet.children()))


def test_one_ctrl_c_drains_all_of_them_and_a_second_leaves_at_once(shell: Shell):
    fleet = start(shell)
    shell.says("enqueue", "shop:hold", '"x"')
    shell.began("x")
    os.killpg(fleet.process.pid, signal.SIGINT)  # as a terminal does
    until(lambda: "has stopped" in fleet.said, "the idle one stops")
    assert fleet.process.poll() is None
    os.killpg(fleet.process.pid, signal.SIGINT)
    assert fleet.end() == 130
    until(lambda: not any(map(alive, fleet.children())), "the children are gone")


def test_the_children_drain_when_their_parent_is_killed(shell: Shell):
    fleet = start(shell)
    fleet.send(signal.SIGKILL)
    until(lambda: fleet.said.count("has stopped") == 2, "both have drained")


def test_what_no_child_can_mend_ends_the_parent_with_its_code(shell: Shell):
    assert "no module 'nix'" in shell.fails(10, "worker", "--app", "nix", "--processes", "2")
    missing = ("--store", "sqlite:///no/such/folder/x.db")
    shell.fails(4, "worker", "--app", "shop", "--processes", "2", *missing)


async def test_a_signal_does_not_take_a_childs_exit_code_from_who_waits_for_it(monkeypatch):
    def taken(child: "subprocess.Popen[bytes]") -> None:
        raise AssertionError("it looked, and the exit code would be gone")

    fleet = Fleet(1, lambda _: [sys.executable, "-c", "import time; time.sleep(600)"])
    child = await fleet._start(1)
    monkeypatch.setattr(subprocess.Popen, "poll", taken)
    fleet._drain()
    async with asyncio.timeout(60):
        assert await child.wait() == -signal.SIGTERM
    fleet._tell(signal.SIGTERM)  # it has ended: nobody is told
