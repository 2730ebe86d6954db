"""A connection that is not waited for: whoever takes too long to say what is wanted, or to read the
answer, is put out."""

import asyncio
import logging
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Patient"]

logger = logging.getLogger("holdfast.http")
_LEAST = 4096  # bytes that are read between two looks
_KERNEL = 256 * 1024  # bytes that the kernel holds of an answer; left to itself it takes megabytes


class Patient(H11Protocol):
    """Patient with what it does itself, not with clients that send a byte now and then: the head
    of a request must come within `SECONDS`. Nor with those that do not read: one answer waits in
    memory, no more, and as long as some of it is read every `READING` seconds."""

    SECONDS = 15.0
    READING = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hurry: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that we hear of all that is not read
        self._set(socket.SO_SNDBUF, _KERNEL)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        self._stop_looking()
        super().connection_lost(exc)

    # ── who sends ────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._calm()  # its head is here; a body has a limit of its own
        elif self._hurry is None and self.timeout_keep_alive_task is None:
            self._hurry = self.loop.call_later(self.SECONDS, self._put_out)

    def _calm(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _put_out(self) -> None:
        self._hurry = None
        if not self.transport.is_closing():
            self.transport.abort()

    # ── who reads ────────────────────────────────────────────────────────────────────────────

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_looking()

    def _look_again(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._look = self.loop.call_later(self.READING, self._looked, unread)

    def _looked(self, unread: int) -> None:
        """Also where it is closing: what nobody reads would keep it open for ever."""
        if self.transport.get_write_buffer_size() > unread - _LEAST:
            logger.info("a client that does not read its answer is put out")
            self._set(socket.SO_LINGER, struct.pack("ii", 1, 0))  # the kernel drops its part too
            self.transport.abort()
        else:
            self._look_again()

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _set(self, option: int, value: int | bytes) -> None:
        wire = self.transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, option, value)
