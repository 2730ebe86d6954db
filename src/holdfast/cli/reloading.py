"""Processes that are started anew when a file changes."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.exits import Exit
from holdfast.cli.render import say

__all__ = ["Reloading", "changes", "stamps"]

_LOOK = 0.5
_PATIENCE = 10.0  # seconds to drain before it is killed
_MOST = 20_000
_NOT_OURS = {"__pycache__", "node_modules", "site-packages", "venv"}


class Reloading:
    """Keeps `commands` running, by name, until a signal comes."""

    def __init__(self, commands: dict[str, list[str]], folder: Path) -> None:
        self._commands, self._folder = commands, folder
        self._children: dict[str, Process] = {}
        self._said: set[str] = set()
        self._over = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        seen = await asyncio.to_thread(stamps, self._folder)
        await self._start()
        while not await self._rest():
            self._tell_of_ends()
            now = await asyncio.to_thread(stamps, self._folder)
            if changed := changes(seen, now):
                seen = now
                say(f"{changed[0]} changed: starting anew")
                await self._stop()
                await self._start()
        await self._stop()
        return Exit.OK

    async def _rest(self) -> bool:
        """Whether it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await self._over.wait()
        return self._over.is_set()

    async def _start(self) -> None:
        self._said.clear()
        for name, command in self._commands.items():
            self._children[name] = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,  # its end tells the child that we are gone
                start_new_session=True,  # a terminal's Ctrl-C reaches us only: we pass it on
            )
            say(f"{name} process 1 has pid {self._children[name].pid}")

    def _tell_of_ends(self) -> None:
        for name, child in self._children.items():
            if child.returncode is not None and name not in self._said:
                self._said.add(name)
                say(
                    f"the {name} ended with {child.returncode}; it starts anew with the next change"
                )

    async def _stop(self) -> None:
        await asyncio.gather(*map(_end, self._children.values()))


async def _end(child: Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            async with asyncio.timeout(_PATIENCE):
                await child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


def stamps(folder: Path) -> dict[Path, int]:
    """When each source file was written."""
    found: dict[Path, int] = {}
    for path in _sources(folder):
        with contextlib.suppress(OSError):
            found[path] = path.stat().st_mtime_ns
        if len(found) >= _MOST:
            break
    return found


def _sources(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not (name in _NOT_OURS or name.startswith("."))]
        for name in names:
            if name.endswith(".py"):
                yield Path(place, name)


def changes(before: dict[Path, int], after: dict[Path, int]) -> list[Path]:
    """Files that were written, added or taken away."""
    return sorted(path for path in before.keys() | after if before.get(path) != after.get(path))
