"""A child process as its worker holds it: the line, its death, and what it died of."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.errors import HoldfastError
from holdfast.executors import wire
from holdfast.executors.tree import Tree, can_be_seen

__all__ = ["Limits", "Nonsense", "Spawned"]

_ROOT = str(Path(__file__).parents[2])  # where the package lies
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from holdfast.executors.child import main; main()"
)
_LOOK_AGAIN = 0.02
_FELL_AGAIN = 0.001
_LONGEST_FELLING = 1.0  # seconds; what still is not dead then hangs in the kernel, or multiplies
_WANT_OF_MEMORY = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a process may use; processes with other limits are other processes."""

    memory: int | None = None
    cpu: float | None = None


class Nonsense(HoldfastError):
    """The child wrote something that is no frame."""


class Spawned:
    """Started anew, never forked; the head of its own session, so that its children die with it
    even where they cannot be found one by one.

    Everything happens on the event loop: nobody else kills or reaps it, so its process id cannot
    have gone to a stranger.
    """

    def __init__(self, limits: Limits, ended: Callable[["Spawned"], None]) -> None:
        self.limits, self.calls = limits, 0
        self._doomed = False
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._sending = asyncio.Lock()
        self._sock, theirs = socket.socketpair()
        watched, self._lifeline = os.pipe()
        try:
            self._process = _start(theirs.fileno(), watched, limits)
        except BaseException:
            self._sock.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(watched)
        self._sock.setblocking(False)
        self._watch()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def send(self, message: wire.ToChild) -> None:
        async with self._sending:
            await self._loop.sock_sendall(self._sock, wire.frame(message))

    async def receive(self) -> wire.FromChild:
        """Raises `EOFError` when it is gone, `Nonsense` when it should be."""
        size = int.from_bytes(await self._exactly(wire.HEAD))
        if size > wire.LARGEST:
            raise Nonsense(f"a frame of {size:,} bytes")
        data = await self._exactly(size)
        try:
            return wire.from_child(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Nonsense(str(error)) from None

    def kill(self) -> None:
        """It and all that it started; where these cannot be seen, those that stayed in its group.

        It goes last: as long as it is there, whoever loses a parent becomes its child.
        """
        if not self.alive or self._doomed:
            return
        self._doomed = True
        if can_be_seen(self.pid):
            self._fell(Tree(self.pid), self._loop.time() + _LONGEST_FELLING)
        else:
            _kill_group(self.pid)

    def _fell(self, tree: Tree, deadline: float) -> None:
        """A round, and another one soon, until nobody is left that could start anybody."""
        if not self.alive:
            return
        is_still = tree.stop_root()  # before it is looked at
        if (tree.kill() and is_still) or self._loop.time() > deadline:
            _kill_group(self.pid)
        else:
            self._loop.call_later(_FELL_AGAIN, self._fell, tree, deadline)

    async def gone(self) -> None:
        """Dead, and reaped."""
        await self._gone.wait()

    async def stop(self, grace: float) -> None:
        """Let it end in good order, but not for longer than so many seconds."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(grace):
                await self.send(wire.Stop())
                await self.gone()
        self.kill()
        await self.gone()

    def how(self) -> str:
        """What it died of."""
        code = self._process.returncode
        if code >= 0:
            return f"exited with code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}{self._blame(-code)}"

    def _blame(self, number: int) -> str:
        if number == signal.SIGXCPU and self.limits.cpu is not None:
            return f": it used up its cpu_limit of {self.limits.cpu:g} s"
        if number in _WANT_OF_MEMORY and self.limits.memory:
            return f", which a reached memory_limit ({self.limits.memory:,} bytes) can cause"
        if number == signal.SIGKILL:
            return ", by somebody or by a system short of memory"
        return ""

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._loop.sock_recv(self._sock, size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _watch(self) -> None:
        """Its death, not only the end of the line: a child of its own may hold that open."""
        try:
            self._handle: int | None = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on Linux, or not allowed
            self._handle = None
            self._loop.call_later(_LOOK_AGAIN, self._look)
        else:
            self._loop.add_reader(self._handle, self._died)

    def _look(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(_LOOK_AGAIN, self._look)
        else:
            self._died()

    def _died(self) -> None:
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
        _kill_group(self.pid)  # what it left behind; until it is reaped, the number is its own
        self._process.wait()
        os.close(self._lifeline)
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # whoever reads gets what is there, then the end
        self._gone.set()
        self._ended(self)

    def close(self) -> None:
        """Let go of the line, once nobody reads it any more."""
        self._sock.close()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _start(line: int, lifeline: int, limits: Limits) -> "subprocess.Popen[bytes]":
    if not sys.executable or sys.platform == "win32":
        raise HoldfastError(
            "isolation='process' needs a Python interpreter to start and a Unix system"
        )
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    numbers = [line, lifeline, os.getpid()]
    if limits.memory is not None:
        numbers.append(limits.memory)
    return subprocess.Popen(  # noqa: S603
        [sys.executable, *flags, "-c", _BOOT, _ROOT, *map(str, numbers)],
        pass_fds=(line, lifeline),
        start_new_session=True,
    )
