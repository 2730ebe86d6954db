"""Sync functions in threads. A thread cannot be killed: it keeps its place until it ends."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from holdfast.context import Asking, Context, Keeper, Releasing, running
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.executors.calling import call
from holdfast.executors.outcomes import contained
from holdfast.executors.ready import Ready
from holdfast.function import Function
from holdfast.tasks.lifecycle import Outcome
from holdfast.tasks.payload import encode

__all__ = ["ThreadExecutor", "ThreadKeeper"]

T = TypeVar("T")
Reply = tuple[Any, BaseException | None]


class ThreadKeeper:
    """Asks the keeper on the worker's loop, and blocks the calling thread until it is done; what
    comes on that very loop, with the thread's context, is awaited there."""

    def __init__(self, keeper: Keeper, context: Context) -> None:
        self._keeper = keeper
        self._task = context.task_id
        self._loop = asyncio.get_running_loop()
        self.stopped = False
        self._flow: Asking | None = None

    def progress(self, percent: float, message: str | None, saved: bytes | None) -> Awaitable[None]:
        return self._ask("progress", lambda: self._keeper.progress(percent, message, saved))

    def saved(self) -> Awaitable[bytes | None]:
        return self._ask("saved", self._keeper.saved)

    def release(self, outcome: Outcome) -> Awaitable[None]:
        keeper = self._keeper
        if not isinstance(keeper, Releasing):
            raise HoldfastError("this attempt cannot be released; return or raise instead")
        return self._ask("release", lambda: keeper.release(outcome))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        raise HoldfastError(
            "transaction() belongs to the worker's event loop: make the function `async def`"
        )

    @property
    def flow(self) -> Asking | None:
        """For the thread; nobody on the loop asks for anything in its name."""
        if _running_loop() is self._loop:
            return None
        if self._flow is None:

            async def made() -> Asking | None:
                flow = self._keeper.flow
                return flow and flow.blocking()

            self._flow = self._wait("flow", made)
        return self._flow

    @property
    def may_ask(self) -> bool:
        return _running_loop() is not self._loop and self._keeper.may_ask

    @property
    def has_asked(self) -> bool:
        return self._keeper.has_asked

    def _ask(self, verb: str, ask: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        return ask() if _running_loop() is self._loop else Ready(self._wait(verb, ask))

    def _wait(self, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await ask()

        if self.stopped or self._loop.is_closed():
            raise LeaseLost(verb, self._task)
        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()


class _Job:
    __slots__ = ("future", "loop", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Reply] = self.loop.create_future()

    def run(self) -> None:
        reply: Reply
        try:
            reply = self.work(), None
        except BaseException as error:  # also SystemExit: it ends the attempt, not the worker
            reply = None, error
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._tell, reply)

    def _tell(self, reply: Reply) -> None:
        if not self.future.done():
            self.future.set_result(reply)


class ThreadExecutor:
    """As many threads as there are calls; they are daemons, so none of them holds up an exit.

    A call that was cancelled goes on until it ends by itself or asks `check_cancelled()`: it is
    `stranded`, and `freed` is called on the event loop when such a call has ended.
    """

    def __init__(
        self, *, idle_seconds: float = 60.0, freed: Callable[[], None] | None = None
    ) -> None:
        self._idle_seconds, self._freed = idle_seconds, freed
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._number = 0
        self._closed = False
        self.stranded = 0

    async def run(self, function: Function[..., Any, Any], context: Context) -> bytes:
        args, kwargs = function.signature.unpack(context.claimed.payload)
        keeper = ThreadKeeper(context.keeper, context)
        seen = _seen_inside(context, keeper)
        inside = contextvars.copy_context()
        inside.run(running.set, seen)

        def stopped() -> None:
            keeper.stopped = seen.cancel_requested = True

        try:
            value, error = await self.call(
                lambda: encode(inside.run(call, function, args, kwargs)), stopped
            )
        finally:
            context.when_cancelled(None)
        if error is not None:
            raise contained(error, function)
        result: bytes = value
        return result

    async def call(self, work: Callable[[], Any], stopped: Callable[[], None]) -> Reply:
        """What this answers or raises, in a thread. `stopped` is called where nobody waits for it
        any more."""
        job = _Job(work)
        self._hand_over(job)
        try:
            return await asyncio.shield(job.future)
        except asyncio.CancelledError:
            stopped()
            self._strand(job)
            raise

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle -= 1
                self._jobs.put(None)

    def _strand(self, job: _Job) -> None:
        if job.future.done():
            return
        self.stranded += 1
        job.future.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        self.stranded -= 1
        if self._freed:
            self._freed()

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
            job = None  # or what it returned would be kept until the next one
            with self._lock:
                if self._closed:
                    return
                self._idle += 1
            job = self._next()

    def _next(self) -> _Job | None:
        try:
            return self._jobs.get(timeout=self._idle_seconds)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
            return self._jobs.get()  # another thread's place was given away: one job is for us


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _seen_inside(context: Context, keeper: ThreadKeeper) -> Context:
    seen = Context(
        context.claimed,
        keeper,
        worker_id=context.worker_id,
        max_tries=context.max_tries,
        secrets=context.secrets,
        clock=context.clock,
    )

    seen.effects = context.effects

    def tell() -> None:
        seen.cancel_requested = True

    context.when_cancelled(tell)
    return seen
