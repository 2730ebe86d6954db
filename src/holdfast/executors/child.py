"""The inside of a child process: takes one call after the other from the line to its worker."""

import atexit
import contextvars
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from itertools import count
from queue import SimpleQueue
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from holdfast import errors
from holdfast.context import Context, running
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.executors import lifeline, places, rlimits, tree, wire
from holdfast.executors.calling import call
from holdfast.executors.outcomes import raised_by
from holdfast.executors.places import Place
from holdfast.executors.ready import Ready
from holdfast.executors.records import LineHandler, take_levels
from holdfast.function import Function
from holdfast.tasks.lifecycle import Outcome
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Failure, plain

__all__ = ["main"]

_OUT_OF_REACH = (
    "steps, sleeps, signals, calls of other durable functions, now(), random() and uuid() are "
    "recorded by the worker, out of reach for a function with isolation='process': leave that out, "
    "or hand the work on with app.dispatch"
)


def main() -> None:
    """Arguments: the line, the lifeline, the parent, and the memory limit or nothing."""
    line, pipe, parent, *memory = map(int, sys.argv[1:])
    os.set_inheritable(line, False)
    os.set_inheritable(pipe, False)
    lifeline.tie(pipe, parent)
    tree.adopt_orphans()
    atexit.register(tree.kill_rest, os.getpid())  # the first to be registered runs last
    with socket.socket(fileno=line) as sock:
        child = Child(Line(sock))
        logging.getLogger().addHandler(child.log_handler())
        rlimits.limit_memory(memory[0] if memory else None)
        child.serve()


class Line:
    """Whole frames, one at a time in each direction."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._sender: int | None = None

    def is_sending(self) -> bool:
        """Whether it is this thread that sends: a signal handler may have come in between."""
        return self._sender == threading.get_ident()

    def send(self, message: wire.FromChild) -> None:
        data = wire.frame(message)
        try:
            with self._lock:
                self._sender = threading.get_ident()
                try:
                    self._sock.sendall(data)
                finally:
                    self._sender = None
        except OSError:  # nobody is there
            lifeline.end_group()

    def receive(self) -> wire.ToChild | None:
        """None: the other end is gone."""
        try:
            size = int.from_bytes(self._exactly(wire.HEAD))
            return wire.to_child(self._exactly(size))
        except (OSError, EOFError):
            return None

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._sock.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


class Child:
    """One call at a time in the main thread, where signals and most libraries expect it."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._pid = os.getpid()
        self._runs: SimpleQueue[tuple[wire.Run, Context] | None] = SimpleQueue()
        self._asks: dict[int, tuple[UUID, Future[bytes | None]]] = {}
        self._numbers = count(1)
        self._now: tuple[int, Context] | None = None
        self._found: dict[Place, Function[..., Any, Any]] = {}
        self._levels: dict[str, int] = {}

    def serve(self) -> None:
        threading.Thread(target=self._hear, name="holdfast-line", daemon=True).start()
        while (given := self._runs.get()) is not None:
            self._run(*given)

    def log_handler(self) -> LineHandler:
        def number() -> int:
            return self._now[0] if self._now else 0  # before the first call

        def scrub(text: str) -> str:
            return self._now[1].scrub(text) if self._now else text

        return LineHandler(
            self._line.send, is_sending=self._line.is_sending, number=number, scrub=scrub
        )

    def ask(self, number: int, task: UUID, message: Any) -> Future[bytes | None]:
        """Send a question, made by `message(ask)`; the answer comes by the listening thread."""
        ask, future = next(self._numbers), Future[bytes | None]()
        self._asks[ask] = task, future
        self._line.send(message(number=number, ask=ask))
        return future

    def leave(self, number: int) -> NoReturn:
        """The worker ends this process and runs the function itself. It goes no further here: not
        even what it does when it ends."""
        self._line.send(wire.Needs(number))
        while True:
            time.sleep(3600)

    def _hear(self) -> None:
        try:
            self._listen()
        except BaseException:  # for want of memory, say: a deaf child is of no use
            lifeline.end_group()

    def _listen(self) -> None:
        while True:
            match self._line.receive():
                case None:
                    lifeline.end_group()
                case wire.Run() as run:
                    context = self._context(run)
                    self._now = run.number, context
                    self._runs.put((run, context))
                case wire.Cancel(number):
                    if self._now and self._now[0] == number:
                        self._now[1].cancel_requested = True
                case wire.Answer() as answer:
                    self._answered(answer)
                case wire.Stop():
                    return self._runs.put(None)

    def _answered(self, answer: wire.Answer) -> None:
        task, future = self._asks.pop(answer.ask)
        if not future.set_running_or_notify_cancel():
            return  # whoever asked was cancelled
        if answer.refusal:
            future.set_exception(_refused(answer.refusal, task))
        else:
            future.set_result(answer.saved)

    def _context(self, run: wire.Run) -> Context:
        context = Context(
            run.claimed,
            ChildKeeper(self, run),
            worker_id=run.worker_id,
            max_tries=run.max_tries,
            secrets=lambda: frozenset(run.hidden),
        )
        context.cancel_requested = run.cancel_requested
        return context

    def _run(self, run: wire.Run, context: Context) -> None:
        message: wire.FromChild
        function, inside = None, contextvars.copy_context()
        inside.run(running.set, context)
        try:
            if run.levels != self._levels:  # else what the function's module has set stays
                self._levels = run.levels
                take_levels(run.levels)
            function = self._find(run)
            args, kwargs = function.signature.unpack(run.claimed.payload)
            self._line.send(wire.Started(run.number))
            rlimits.grant_cpu(run.cpu_limit)
            result = encode(inside.run(call, function, args, kwargs))
            message = wire.Returned(run.number, result)
        except BaseException as error:
            message = inside.run(_threw, run.number, error, function)  # where secrets are known
        if os.getpid() != self._pid:  # the function forked, and this is the copy
            os._exit(0)
        rlimits.grant_cpu(None)
        _flush()
        self._line.send(message)

    def _find(self, run: wire.Run) -> Function[..., Any, Any]:
        around = run.surroundings
        sys.path[:] = map(os.fsdecode, around.path)
        sys.argv[:] = map(os.fsdecode, around.argv)
        if around.cwd is not None:
            with suppress(OSError):
                os.chdir(around.cwd)
        if run.place not in self._found:
            self._found[run.place] = places.find(run.place)
        return self._found[run.place]


class ChildKeeper:
    """Hands over to the worker what an attempt asks for."""

    def __init__(self, child: Child, run: wire.Run) -> None:
        self._child, self._number, self._task = child, run.number, run.claimed.lease.task
        self._may_leave = run.may_leave

    def progress(self, percent: float, message: str | None, saved: bytes | None) -> Awaitable[None]:
        share = float(percent)
        text = None if message is None else plain(str(message), 1000)

        def ask(number: int, ask: int) -> wire.Progress:
            return wire.Progress(number=number, ask=ask, percent=share, message=text, saved=saved)

        return _wait(self._child.ask(self._number, self._task, ask))

    def saved(self) -> Awaitable[bytes | None]:
        return _wait(self._child.ask(self._number, self._task, wire.Saved))

    @property
    def flow(self) -> NoReturn:
        self._cannot(_OUT_OF_REACH)

    @property
    def may_ask(self) -> bool:
        return False

    @property
    def has_asked(self) -> bool:
        """Asked before something is dispatched, under ids that only the worker can derive anew."""
        if self._may_leave:
            self._child.leave(self._number)
        return False

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        self._cannot(
            "transaction() needs the worker's own connection, which does not reach into another "
            "process: leave out isolation='process', and make the function `async def`"
        )

    def release(self, outcome: Outcome) -> Awaitable[None]:
        self._cannot(
            "a lease cannot be released from a process of its own; return or raise instead"
        )

    def _cannot(self, why: str) -> NoReturn:
        if self._may_leave:
            self._child.leave(self._number)
        raise HoldfastError(why)


def _wait(future: Future[Any]) -> Awaitable[Any]:
    """In a coroutine it is awaited, in a sync function it has happened when this returns."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return Ready(future.result())
    return asyncio.wrap_future(future)


def _refused(refusal: wire.Refusal, task: UUID) -> HoldfastError:
    if refusal.type == "LeaseLost":
        return LeaseLost("progress", task)
    kind = getattr(errors, refusal.type, HoldfastError)
    error: HoldfastError = kind.__new__(kind, refusal.message)
    return error


def _threw(
    number: int, error: BaseException, function: Function[..., Any, Any] | None
) -> wire.Threw:
    if not issubclass(type(error), MemoryError):
        return wire.Threw(number, raised_by(error, function))
    rlimits.lift_memory()
    raised = raised_by(error, function)
    if function is not None and (limit := function.traits.memory_limit):
        raised = msgspec.structs.replace(raised, failure=_wanting(raised.failure, limit))
    return wire.Threw(number, raised, worn=True)


def _wanting(failure: Failure, limit: int) -> Failure:
    """Python itself says nothing but the name of the error; libraries say how much they wanted."""
    said = "" if failure.message == "MemoryError()" else f"{failure.message[:3000]}: "
    advice = (
        f"not enough memory within its memory_limit of {limit:,} bytes: raise memory_limit=, "
        "or use less"
    )
    return msgspec.structs.replace(failure, message=said + advice)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
