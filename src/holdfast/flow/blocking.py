"""The flow of a sync durable function: it asks from its thread, and blocks there."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from holdfast.context import Effect, here, running
from holdfast.errors import InvalidInput
from holdfast.flow.asks import PutDown
from holdfast.function import Call

if TYPE_CHECKING:
    from holdfast.flow.asking import Asking

__all__ = ["Blocking", "hand_on"]

_PATIENCE = 10  # asks that are refused at once


class Blocking:
    """Keeps `holdfast.context.Asking`, in a thread. What would be awaited goes through `run`."""

    def __init__(self, flow: "Asking") -> None:
        self._flow = flow
        self._refused = 0

    def run(self, awaitable: Awaitable[Any], *, always: bool = False) -> Any:
        """Block until it has come. `always`: also where nothing is asked any more."""
        if not isawaitable(awaitable):
            raise InvalidInput(
                f"run takes what can be awaited, got {type(awaitable).__name__}; a call of a sync "
                "function has its result already: leave out run, or write run(charge.call(7))"
            )

        async def on_the_loop() -> Any:
            # Only here: whoever makes an asyncio task looks at what runs.
            running.set(self._flow.context)
            here.set(None)
            return await awaitable

        answer: Future[Any] = Future()
        self._flow.loop.call_soon_threadsafe(self._start, on_the_loop(), answer, always)
        try:
            return answer.result()
        except CancelledError:
            if isinstance(awaitable, Coroutine):
                awaitable.close()  # it may not have begun
            if self._flow.closed:
                self._pause()
            raise PutDown from None

    def _pause(self) -> None:
        """A thread that goes on in spite of it leaves the interpreter to others."""
        self._refused += 1
        if self._refused > _PATIENCE:
            time.sleep(0.001 * 2 ** min(self._refused - _PATIENCE, 10))

    def _start(self, work: Coroutine[Any, Any, Any], answer: "Future[Any]", always: bool) -> None:
        if self._flow.closed and not always:
            work.close()
            answer.cancel()
            return
        self._flow.lead(work, answer)

    def child(self, call: Call[Any]) -> Any:
        """A sync function answers its result, as it would without us; a coroutine, itself."""
        child = self._flow.child(call)
        return child if call.function.is_async else self.run(child)

    def join(
        self, calls: Iterable[Call[Any]], *, at_most: int | None, return_exceptions: bool
    ) -> Coroutine[Any, Any, list[Any]]:
        return self._flow.join(calls, at_most=at_most, return_exceptions=return_exceptions)

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        return self._flow.step(name, function, args, kwargs)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._flow.sleep(seconds)

    def signal(self, name: str, type: Any, timeout: float | None) -> Coroutine[Any, Any, Any]:
        return self._flow.signal(name, type, timeout)

    def continue_as_new(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        return self._flow.continue_as_new(args, kwargs)

    def value(self, kind: str, name: str, make: Callable[[], bytes]) -> bytes:
        async def taken() -> bytes:
            return self._flow.value(kind, name, make)

        found: bytes = self.run(taken())
        return found

    async def look(self, name: str, digest: str) -> Effect:
        found: Effect = self.run(self._flow.look(name, digest))
        return found

    async def note(self, effect: Effect, value: bytes, *, decides: bool) -> None:
        """It is done, whatever has become of the function meanwhile."""
        self.run(self._flow.note(effect, value, decides=decides), always=True)

    async def carry_out(self, effect: Coroutine[Any, Any, bytes]) -> bytes:
        """Nobody cancels a thread; but its attempt may end meanwhile, and must know of this. One
        that has ended already begins nothing."""
        done: Future[bytes] = Future()
        done.set_running_or_notify_cancel()  # nobody else ends it
        try:
            self.run(self._flow.carried_out_elsewhere(done))
            return await effect
        finally:
            effect.close()
            done.set_result(b"")

    def patched(self, name: str) -> bool:
        async def asked() -> bool:
            return self._flow.patched(name)

        found: bool = self.run(asked())
        return found

    def blocking(self) -> "Blocking":
        return self


def hand_on(task: "asyncio.Task[Any]", answer: "Future[Any]") -> None:
    """What the loop's side came to, to the thread that waits for it."""
    if answer.done():
        return
    if task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
