"""The workers on stage: real processes, started, killed and drained."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import click

__all__ = ["LEASE", "SLOTS", "Stage"]

LEASE = 2.0  # seconds
SLOTS = 3


class Stage:
    """Worker processes by name, as `python -m holdfast.worker` starts them. They write their logs
    into a folder, so that the show stays readable."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._workers: dict[str, Process] = {}

    async def enter(self, name: str) -> int:
        """Start a worker and wait until it is ready; answers its pid."""
        with (self._folder / f"{name}.log").open("wb") as log:
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast.worker", "--app", "holdfast.cli.demo.functions"),
                *("--store", self._url, "--worker-id", name, "--concurrency", str(SLOTS)),
                *("--lease", f"{LEASE}", "--poll-max", "0.5s", "--recovery-interval", "0.2s"),
                "--with-parent",
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
            )
        self._workers[name] = worker
        assert worker.stdout
        if not await worker.stdout.readline():
            said = (self._folder / f"{name}.log").read_text(errors="replace")
            raise click.ClickException(f"{name} did not start:\n{said[-2000:]}")
        return worker.pid

    def check(self) -> None:
        for name, worker in self._workers.items():
            if worker.returncode is not None:
                said = (self._folder / f"{name}.log").read_text(errors="replace")
                raise click.ClickException(f"{name} ended by itself:\n{said[-2000:]}")

    def freeze(self, name: str) -> None:
        self._workers[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._workers[name].send_signal(signal.SIGCONT)

    async def kill(self, name: str) -> None:
        """As a power cut would: no farewell."""
        worker = self._workers.pop(name)
        worker.send_signal(signal.SIGKILL)
        await worker.wait()

    async def drain(self) -> dict[str, int]:
        """All who are left; their exit codes."""
        for worker in self._workers.values():
            worker.terminate()
        codes = {name: await worker.wait() for name, worker in self._workers.items()}
        self._workers.clear()
        return codes

    async def clear(self) -> None:
        """Whatever happened: nobody stays behind."""
        for name in list(self._workers):
            if self._workers[name].returncode is None:
                await self.kill(name)
