"""The processes of one measurement: who enqueues, and the workers; killed whole, with children."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from bench.peers.roster import Peer

__all__ = ["ROOT", "Failed", "Field", "Worker", "wait_until"]

ROOT = Path(__file__).parents[2]
ANSWERS_WITHIN = 90.0


class Failed(Exception):
    """What a peer could not do, in its own words."""


class Worker:
    """A worker of a peer, with every process that it starts."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._log = log

    def check(self) -> None:
        """It is alive, or we hear why not."""
        if self._process.poll() is not None:
            raise Failed(f"the worker left with {self._process.returncode}: {tail(self._log)}")

    def kill(self) -> None:
        """kill -9, at once for all of its processes: what a lost machine looks like."""
        family = _family(self._process.pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._process.wait()


class Field:
    """One peer on a fresh store: a producer that runs, a folder for the ledger, workers."""

    def __init__(self, peer: Peer, python: Path, url: str, folder: Path) -> None:
        self.ledger, self._log = folder / "ledger", folder / "log"
        self.ledger.mkdir()
        self._peer, self.url, self._workers = peer, url, list[Worker]()
        with self._log.open("ab") as log:
            self._producer = subprocess.Popen(
                [python, "-m", "bench.peers.producer", peer.module],
                cwd=ROOT,
                env=self._environment("producer"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.about: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.about = self.ask("setup", package=self._peer.package)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._producer.kill()
        self._producer.communicate()

    def ask(self, verb: str, **arguments: Any) -> Any:
        assert self._producer.stdin
        assert self._producer.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"verb": verb, "with": arguments}), file=self._producer.stdin)
            self._producer.stdin.flush()
        readable, _, _ = select.select([self._producer.stdout], [], [], ANSWERS_WITHIN)
        if not readable:
            raise Failed(f"no answer to {verb} in {ANSWERS_WITHIN:.0f} s: {tail(self._log)}")
        line = self._producer.stdout.readline()
        if not line:
            raise Failed(f"the producer left: {tail(self._log)}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    def work(self, slots: int, *, ledger: str, name: str) -> Worker:
        """Start a worker; `name` is who it says it is."""
        environment = self._environment(ledger) | {"BENCH_WORKER": name}
        worker = Worker(self.ask("command", slots=slots), environment, self._log)
        self._workers.append(worker)
        return worker

    def check(self) -> None:
        for worker in self._workers:
            worker.check()

    def log(self) -> str:
        return tail(self._log)

    def _environment(self, ledger: str) -> dict[str, str]:
        ours = {"BENCH_URL": self.url, "BENCH_LEDGER": str(self.ledger / ledger)}
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return os.environ | ours | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def wait_until(
    done: Callable[[], bool], within: float, *, check: Callable[[], None] = lambda: None
) -> bool:
    """Look every 10 ms; whether it came true in time."""
    deadline = time.monotonic() + within
    while not done():
        check()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def tail(log: Path) -> str:
    """The last thing it said."""
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return said[-1].strip()[-300:] if said else "it said nothing"


def _family(pid: int) -> list[int]:
    """A process, its children, and theirs: a library may give them sessions of their own."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family.extend(parents.get(member, []))
    return family
