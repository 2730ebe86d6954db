"""Functions in processes of their own, which can be killed and may crash."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any, assert_never
from uuid import UUID

import msgspec

from holdfast.context import Context
from holdfast.errors import HoldfastError, InvalidInput, LeaseLost, ProcessDied
from holdfast.executors import records, wire
from holdfast.executors.outcomes import FunctionRaised, NeedsWorker
from holdfast.executors.places import check_not_importing, place_of
from holdfast.executors.spawned import Limits, Nonsense, Spawned
from holdfast.function import Function

__all__ = ["ProcessExecutor"]

logger = logging.getLogger("holdfast.executors")
_LONGEST_DEATH = 10.0  # seconds; what is still there then hangs in the kernel


class _NotStarted(Exception):
    """The process was gone before the function began."""


class ProcessExecutor:
    """Warm processes, one call at a time each, as many as there are calls.

    At most `max_idle` wait for work, each for at most `idle_seconds`; one that took `max_calls`
    ends, and gets `grace` seconds for it. Cancelling `run` kills the process and all that it
    started at once, and it is gone when `run` has raised. What is in a process group of its own
    escapes where the process dies without our doing, and wherever it is not Linux.

    `lets_leave`: a function that asks for what only the worker's own process has ends there, by
    `NeedsWorker`, and `can_run` is false for it from then on; else it hears that it cannot have it.
    """

    def __init__(
        self,
        *,
        max_idle: int = 4,
        max_calls: int = 1000,
        idle_seconds: float = 60.0,
        grace: float = 2.0,
        lets_leave: bool = False,
    ) -> None:
        self._lets_leave = lets_leave
        self._left: set[tuple[str, str]] = set()
        self._max_idle, self._max_calls = max_idle, max_calls
        self._idle_seconds, self._grace = idle_seconds, grace
        self._idle: list[tuple[Spawned, asyncio.TimerHandle]] = []
        self._running: dict[int, tuple[UUID, Spawned]] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._closed = False

    def check(self, function: Function[..., Any, Any]) -> None:
        """Raises `InvalidInput` where a process of its own could not find this function."""
        place_of(function)

    def can_run(self, function: Function[..., Any, Any]) -> bool:
        try:
            self.check(function)
        except InvalidInput:
            return False
        return (function.name, function.version) not in self._left

    async def run(self, function: Function[..., Any, Any], context: Context) -> bytes:
        """Raises `FunctionRaised` for what the function raised, `ProcessDied` if it crashed."""
        check_not_importing()
        if self._closed:
            raise HoldfastError("this executor is closed")
        message = self._message(function, context)
        limits = Limits(memory=function.traits.memory_limit, cpu=function.traits.cpu_limit)
        warm = self._take(limits)
        if warm is not None:
            try:
                return await self._call(warm, message, context)
            except _NotStarted:  # it died while it was idle: no fault of this call
                pass
        child = Spawned(limits, self._ended)
        try:
            return await self._call(child, message, context)
        except _NotStarted:
            raise ProcessDied(
                f"the process for {function.name!r} {child.how()} before it was called; look for "
                "what its module does when it is imported"
            ) from None

    def tell_cancel(self, task: UUID) -> None:
        """Let the function know, in its process, that somebody asked for its end."""
        for number, (running, child) in self._running.items():
            if running == task:
                self._start_chore(_send(child, wire.Cancel(number)))

    async def close(self) -> None:
        """Kill what runs; let what is idle end in good order."""
        self._closed = True
        busy = [child for _, child in self._running.values()]
        for child in busy:
            child.kill()
        for child, timer in self._idle:
            timer.cancel()
            self._retire(child)
        self._idle.clear()
        for child in busy:
            await child.gone()
        while self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)

    def _message(self, function: Function[..., Any, Any], context: Context) -> wire.Run:
        return wire.Run(
            number=next(self._numbers),
            place=place_of(function),
            claimed=msgspec.structs.replace(context.claimed, retry=None),
            worker_id=context.worker_id,
            max_tries=context.max_tries,
            cancel_requested=context.cancel_requested,
            surroundings=_surroundings(),
            cpu_limit=function.traits.cpu_limit,
            levels=records.levels(),
            hidden=tuple(context.secrets()) if context.secrets else (),
            may_leave=self._lets_leave,
        )

    async def _call(self, child: Spawned, message: wire.Run, context: Context) -> bytes:
        self._running[message.number] = context.task_id, child
        child.calls += 1
        context.when_cancelled(self._teller(context.task_id))
        whole = False
        try:
            ended = await self._converse(child, message, context)
            whole = not (isinstance(ended, wire.Threw) and ended.worn)
        finally:
            context.when_cancelled(None)
            del self._running[message.number]
            if whole:
                self._put_back(child)
            else:
                await _surely(self._start_chore(self._bury(child)))
        if isinstance(ended, wire.Threw):
            raise FunctionRaised(ended.raised)
        return ended.result

    def _teller(self, task: UUID) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            loop.call_soon_threadsafe(self.tell_cancel, task)

        return tell

    async def _converse(
        self, child: Spawned, message: wire.Run, context: Context
    ) -> wire.Returned | wire.Threw:
        """Serve the function until it ends."""
        started = False
        name = message.place.name
        try:
            await child.send(message)
            while True:
                said = await child.receive()
                current = said.number == message.number
                match said:
                    case wire.Started():
                        started = started or current
                    case wire.Progress() | wire.Saved():
                        await child.send(await _served(said, context, current))
                    case wire.Logged():
                        records.handle(said, context if current else None)
                    case wire.Needs():
                        if current:
                            self._left.add((name, message.place.version))
                            raise NeedsWorker(f"{name!r} needs the worker's own process")
                    case wire.Returned() | wire.Threw():
                        if current:
                            return said
                    case _:
                        assert_never(said)
        except (EOFError, OSError):
            child.kill()  # it may have closed the line and live on
            await child.gone()
            if not started:
                raise _NotStarted from None
            raise ProcessDied(f"the process of {name!r} {child.how()}") from None
        except Nonsense as nonsense:
            raise ProcessDied(
                f"the process of {name!r} was killed: something else than answers came from it "
                f"({nonsense}); its function must leave alone the files it did not open"
            ) from None

    def _take(self, limits: Limits) -> Spawned | None:
        """The one used last: the others may retire."""
        for place in reversed(range(len(self._idle))):
            child, timer = self._idle[place]
            if child.limits == limits:
                del self._idle[place]
                timer.cancel()
                return child
        return None

    def _put_back(self, child: Spawned) -> None:
        if self._closed or not child.alive or child.calls >= self._max_calls:
            return self._retire(child)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._idle_seconds, self._rested, child)
        self._idle.append((child, timer))
        if len(self._idle) > self._max_idle:
            oldest, timer = self._idle.pop(0)
            timer.cancel()
            self._retire(oldest)
        return None

    def _rested(self, child: Spawned) -> None:
        self._idle = [(each, timer) for each, timer in self._idle if each is not child]
        self._retire(child)

    def _ended(self, child: Spawned) -> None:
        """It is dead; if it was idle, nobody is to find it."""
        for each, timer in self._idle:
            if each is child:
                timer.cancel()
                self._rested(child)
                return

    def _retire(self, child: Spawned) -> None:
        self._start_chore(self._part_from(child))

    async def _part_from(self, child: Spawned) -> None:
        await child.stop(self._grace)
        child.close()

    async def _bury(self, child: Spawned) -> None:
        child.kill()
        await child.gone()
        child.close()

    def _start_chore(self, chore: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task


async def _served(
    asked: wire.Progress | wire.Saved, context: Context, current: bool
) -> wire.Answer:
    """Through the attempt's own keeper; a thread left over from an earlier call gets nothing."""
    try:
        if not current:
            raise LeaseLost("progress", context.task_id)
        if isinstance(asked, wire.Saved):
            return wire.Answer(ask=asked.ask, saved=await context.keeper.saved())
        await context.keeper.progress(asked.percent, asked.message, asked.saved)
        return wire.Answer(ask=asked.ask)
    except Exception as error:
        kind = type(error).__name__ if isinstance(error, HoldfastError) else "StoreError"
        return wire.Answer(ask=asked.ask, refusal=wire.Refusal(kind, str(error)[:1000]))


async def _send(child: Spawned, message: wire.ToChild) -> None:
    with suppress(OSError):  # it is gone, which whoever waits for its answer learns by himself
        await child.send(message)


async def _surely(end: "asyncio.Task[None]") -> None:
    """To its end, whoever cancels meanwhile; but not for ever."""
    loop, cancelled = asyncio.get_running_loop(), False
    deadline = loop.time() + _LONGEST_DEATH
    while not end.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait({end}, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    if not end.done():
        logger.warning("a process was killed and is still there; the system holds it in a call")
    if cancelled:
        raise asyncio.CancelledError


def _surroundings() -> wire.Surroundings:
    try:
        cwd = os.getcwdb()
    except OSError:  # it was removed
        cwd = None
    path, argv = map(os.fsencode, sys.path), map(os.fsencode, sys.argv)
    return wire.Surroundings(path=list(path), argv=list(argv), cwd=cwd)
