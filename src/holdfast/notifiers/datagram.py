"""Hints between processes on one machine that share a SQLite file: unix datagrams."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress

from holdfast.ids import new_grant
from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers.ear import Ear, Heard
from holdfast.notifiers.messages import Marks, pack
from holdfast.notifiers.outage import LOG, Outage
from holdfast.notifiers.outbox import Outbox
from holdfast.notifiers.private import check_private, folder_for, make_private

__all__ = ["DatagramNotifier"]

AVAILABLE = hasattr(socket, "AF_UNIX") and sys.platform != "win32"

_LIMIT = 60_000 if sys.platform == "linux" else 2_000  # macOS carries no more by default
_LONGEST = 65_536
_AT_ONCE = 100  # datagrams read before the loop may do something else
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.EMSGSIZE)
_REMIND_AFTER = 0.01
_REMIND_UNTIL = 5.0


class DatagramNotifier:
    """`path`: the database file. `parent`: where the folder of sockets is made, the same for all;
    the system's place for temporary files, unless told otherwise. `check_every`: seconds after
    which a listener looks whether its socket is still there."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        parent: str | os.PathLike[str] | None = None,
        check_every: float = 20.0,
        marks: Marks | None = None,
    ) -> None:
        self.folder = folder_for(path, parent)
        self._check_every = check_every
        self._marks = marks or Marks()
        self._full: set[str] = set()
        self._reminder: asyncio.TimerHandle | None = None
        self._senders: dict[str, socket.socket] = {}  # by the name of the receiver's socket
        self._outbox = Outbox(self._send, Outage(f"telling hints through {self.folder}"))
        self._ear = Ear(self._hear, Outage(f"listening in {self.folder}"), self._marks)
        if not AVAILABLE:
            LOG.warning(
                "this system has no unix datagrams, so processes that share %s cannot hint at work "
                "to each other: they fall back to polling",
                path,
            )

    def tell(self, hints: Iterable[Hint]) -> None:
        if AVAILABLE:
            self._outbox.tell(hints)

    async def listen(self, heard: Heard) -> None:
        if AVAILABLE:
            await self._ear.listen(heard)

    def leave(self, heard: Heard) -> None:
        self._ear.leave(heard)

    async def close(self) -> None:
        await self._ear.close()
        await self._outbox.close()
        if self._reminder is not None:
            self._reminder.cancel()
        for sender in self._senders.values():
            sender.close()
        self._senders.clear()

    async def _send(self, hints: list[Hint]) -> None:
        packed = pack(hints, _LIMIT, self._marks.write())
        messages = [message.encode() for message in packed]
        there = self._listeners()
        for gone in self._senders.keys() - there:
            self._senders.pop(gone).close()
        for name in there:
            # Who has missed one may have missed any.
            self._post(name, [str(EVERYTHING).encode()] if name in self._full else messages)
        if self._full and self._reminder is None:
            self._remind_in(_REMIND_AFTER)

    def _listeners(self) -> set[str]:
        """Nobody listens where there is no folder."""
        try:
            check_private(self.folder)
            return {name for name in os.listdir(self.folder) if name.endswith(".sock")}
        except FileNotFoundError:
            return set()

    def _post(self, name: str, messages: list[bytes]) -> None:
        """Each from a socket of its own, which is kept: what one receiver leaves unread fills the
        sender's buffer, and must not keep the others from hearing."""
        self._full.discard(name)
        try:
            try:
                _say(self._senders.get(name) or self._connect(name), messages)
            except OSError as error:
                if error.errno in _FULL or name not in self._senders:
                    raise
                self._senders.pop(name).close()  # perhaps whoever listened there has left
                _say(self._connect(name), messages)
        except ConnectionRefusedError:  # its process is gone
            (self.folder / name).unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._full.add(name)

    def _connect(self, name: str) -> socket.socket:
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sender.setblocking(False)
            sender.connect(str(self.folder / name))
        except OSError:
            sender.close()
            raise
        self._senders[name] = sender
        return sender

    def _remind_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._reminder = loop.call_later(seconds, self._remind, seconds)

    def _remind(self, waited: float) -> None:
        """Those whose queue was full; one that stays so is stopped, and polls when it goes on."""
        self._reminder = None
        for name in tuple(self._full):
            try:
                self._post(name, [str(EVERYTHING).encode()])
            except OSError:
                self._full.discard(name)
        if self._full and waited < _REMIND_UNTIL:
            self._remind_in(waited * 2)

    async def _hear(self) -> None:
        make_private(self.folder)
        path = self.folder / f"{os.getpid()}-{new_grant().hex[:8]}.sock"
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.setblocking(False)
            ear.bind(str(path))
            loop.add_reader(ear, self._read, ear)
            try:
                self._ear.ready()
                while True:
                    await asyncio.sleep(self._check_every)
                    if not path.is_socket():
                        raise FileNotFoundError("the socket was removed")
            finally:
                loop.remove_reader(ear)
                path.unlink(missing_ok=True)
                with suppress(OSError):  # others still listen there
                    self.folder.rmdir()

    def _read(self, ear: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                message = ear.recv(_LONGEST)
            except (BlockingIOError, InterruptedError):
                return
            self._ear.take(message)


def _say(sender: socket.socket, messages: list[bytes]) -> None:
    for message in messages:
        sender.send(message)
