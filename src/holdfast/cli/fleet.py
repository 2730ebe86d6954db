"""Several worker processes under one parent, which starts them again when they die."""

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable

from holdfast.cli.exits import Exit

__all__ = ["Fleet"]

logger = logging.getLogger("holdfast.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_LIVED = 30.0  # seconds after which a child's death is not the last one's fault
_HOPELESS = (Exit.USAGE, Exit.NO_APP)  # starting it again changes nothing


class Fleet:
    """Keeps `count` children until told to drain. They are spawned, never forked.

    Signals are passed on as SIGTERM: where a terminal's Ctrl-C reaches the children too, they must
    not count it twice.
    """

    def __init__(self, count: int, command: Callable[[int], list[str]]) -> None:
        self._count, self._command = count, command
        self._children: dict[int, Process] = {}
        self._draining = asyncio.Event()

    async def run(self) -> int:
        """Until all have drained; answers the worst of their exit codes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._heard, number)
        async with asyncio.TaskGroup() as group:
            slots = [group.create_task(self._keep(n)) for n in range(1, self._count + 1)]
        return max(slot.result() for slot in slots)

    def _heard(self, number: signal.Signals) -> None:
        if not self._draining.is_set():
            self._drain()
        elif number == signal.SIGINT:
            logger.error(
                "left at once: nothing could be handed back; what the workers held is recovered "
                "by others when their leases have lapsed"
            )
            self._tell(signal.SIGKILL)
            os._exit(Exit.INTERRUPTED)

    def _drain(self) -> None:
        self._draining.set()
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for child in self._children.values():
            _send(child, number)

    async def _keep(self, number: int) -> int:
        """One place of the fleet; answers the last exit code in it."""
        loop, pause, first = asyncio.get_running_loop(), _FIRST_PAUSE, True
        while True:
            since = loop.time()
            child = await self._start(number)
            code = await child.wait()
            del self._children[number]
            if self._draining.is_set():
                return Exit.OK if code == -signal.SIGTERM else _as_exit(code)
            if code in _HOPELESS or (first and code == Exit.UNREACHABLE):
                self._drain()
                return code
            first = False
            pause = _FIRST_PAUSE if loop.time() - since > _LIVED else pause
            logger.warning(
                "worker process %d (pid %d) ended with %s; another one starts in %.1f s",
                number, child.pid, _how(code), pause,
            )  # fmt: skip
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._draining.wait()
            if self._draining.is_set():
                return Exit.OK
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _start(self, number: int) -> Process:
        child = await asyncio.create_subprocess_exec(
            *self._command(number),
            stdin=asyncio.subprocess.PIPE,  # its end tells the child that we are gone
        )
        self._children[number] = child
        logger.info("worker process %d has pid %d", number, child.pid)
        if self._draining.is_set():
            _send(child, signal.SIGTERM)
        return child


def _send(child: Process, number: signal.Signals) -> None:
    """Not by its own `send_signal`: in Python 3.11 that looks whether the child has ended, and
    where it has just then, whoever waits for its exit code hears 255."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)


def _as_exit(code: int) -> int:
    return code if code >= 0 else 128 - code


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
