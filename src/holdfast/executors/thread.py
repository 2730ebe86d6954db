"""Sync functions in threads. A thread cannot be killed: it keeps its place until it ends."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from holdfast.context import Context
from holdfast.registry import Function
from holdfast.tasks.payload import encode

__all__ = ["ThreadExecutor"]


class _Job:
    __slots__ = ("future", "loop", "work")

    def __init__(self, work: Callable[[], bytes]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bytes] = self.loop.create_future()

    def run(self) -> None:
        try:
            value, error = self.work(), None
        except BaseException as raised:  # also SystemExit: it ends the attempt, not the worker
            value, error = b"", raised
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._tell, value, error)

    def _tell(self, value: bytes, error: BaseException | None) -> None:
        if self.future.cancelled():
            return
        if error is None:
            self.future.set_result(value)
        elif isinstance(error, StopIteration):  # which no future takes
            self.future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            self.future.set_exception(error)


class ThreadExecutor:
    """As many threads as there are calls; they are daemons, so none of them holds up an exit."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._number = 0

    async def run(self, function: Function[..., Any, Any], context: Context) -> bytes:
        args, kwargs = function.signature.unpack(context.claimed.payload)
        inside = contextvars.copy_context()

        def work() -> bytes:
            return encode(inside.run(function.function, *args, **kwargs))

        job = _Job(work)
        self._hand_over(job)
        return await job.future

    async def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle -= 1
                self._jobs.put(None)

    def _hand_over(self, job: _Job) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                self._jobs.put(job)
                return
            self._number += 1
            name = f"holdfast-call-{self._number}"
        threading.Thread(target=self._main, args=(job,), name=name, daemon=True).start()

    def _main(self, job: _Job | None) -> None:
        while job is not None:
            job.run()
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
