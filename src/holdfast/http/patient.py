"""A connection that is not waited for: whoever takes too long to say what is wanted is put out."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Patient"]


class Patient(H11Protocol):
    """Patient with what it does itself, not with clients that send a byte now and then: the head
    of a request must come within `SECONDS`."""

    SECONDS = 15.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hurry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

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
