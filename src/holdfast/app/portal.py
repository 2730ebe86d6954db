"""A way in for code that does not await: one thread with an event loop of its own."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """Starts its thread with the first call; it ends with the process, or with `close`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it, from any thread but its own."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this thread runs the event loop; await instead")
        return asyncio.run_coroutine_threadsafe(work, self._running()).result()

    def close(self, farewell: Coroutine[Any, Any, None]) -> None:
        """Run the farewell where the connections live, and end."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            farewell.close()
            return
        asyncio.run_coroutine_threadsafe(farewell, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # forked: the thread stayed with the parent
            self._pid, self._lock = os.getpid(), threading.Lock()
            self._loop = self._thread = None
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="holdfast-portal", daemon=True
                )
                self._thread.start()
            return self._loop
