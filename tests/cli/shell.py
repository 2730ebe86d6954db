"""The command line as a user runs it: real processes in a folder of their own."""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SRC = Path(__file__).parents[2] / "src"
WITHIN = 60.0


def until(reached: Callable[[], bool], what: str) -> None:
    """Poll a condition; fail when it has not come in time."""
    over = time.monotonic() + WITHIN
    while not reached():
        assert time.monotonic() < over, f"not within {WITHIN} s: {what}"
        time.sleep(0.01)


class Running:
    """A command that goes on."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process, self._log = process, log
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self, part: str) -> str:
        """The next line on stdout that has this part."""
        over = time.monotonic() + WITHIN
        while True:
            try:
                line = self._lines.get(timeout=max(over - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError(f"no {part!r} on stdout; stderr: {self.said}") from None
            if part in line:
                return line

    @property
    def said(self) -> str:
        """What came on stderr so far."""
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def gone(self) -> None:
        """It and its children, whatever they do."""
        self.process.kill()
        self.process.wait()
        for pid in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join(WITHIN)
        if self.process.stdout:
            self.process.stdout.close()

    def children(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"\w+ process \d has pid (\d+)", self.said)]

    def end(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(WITHIN)


class Shell:
    """Runs `holdfast …` in `folder`, with no setting but those given."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), **environ}
        self._stack = contextlib.ExitStack()
        self._count = 0
        shutil.copy(Path(__file__).parent / "shop.py", folder)

    def run(self, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            cwd=self.folder,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def fails(self, code: int, *args: str, **environ: str) -> str:
        """What it says on stderr when it ends with this code, in words and with no data."""
        done = self.run(*args, **environ)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def says(self, *args: str) -> str:
        """What it says on stdout when it ends well."""
        done = self.run(*args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def rows(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.says("sql", query, "-o", "json"))
        return found

    def start(self, *args: str, module: str = "holdfast", **environ: str) -> Running:
        self._count += 1
        path = self.folder / f"stderr-{self._count}"
        with path.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *args],
                cwd=self.folder,
                env=self.environ | environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=can_be_interrupted,
            )
        running = Running(process, path)
        self._stack.callback(running.gone)
        return running

    def worker(self, *args: str, **environ: str) -> Running:
        """A worker of the shop that is ready."""
        running = self.start("worker", "--app", "shop:app", *args, **environ)
        running.line("is ready")
        return running

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def began(self, name: str) -> None:
        until(lambda: self.has(f"{name}.began"), f"{name} begins")

    def close(self) -> None:
        self._stack.close()


def can_be_interrupted() -> None:
    """Also where the tests run in the background, and inherit that they cannot."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def shell_in(folder: Path, **environ: str) -> Iterator[Shell]:
    shell = Shell(folder, **environ)
    try:
        yield shell
    finally:
        shell.close()
