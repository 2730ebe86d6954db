"""One worker in this process: until a signal drains it."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.errors import StoreUnreachable
from holdfast.work.status import WorkerLifecycle, WorkerState

__all__ = ["run_loop", "serve_here"]

logger = logging.getLogger("holdfast.worker")
_PATIENCE = 3.0  # seconds for a database that is about to start
_SLOWEST = 20.0  # for one that was reached: its first migration, on a machine that is busy
_LEAVING = 3.0  # seconds for whatever still runs at the end
_LEFT = (
    b"left at once: nothing could be handed back; what this worker held is recovered by others "
    b"when its leases have lapsed\n"
)


def serve_here(
    app: Holdfast, *, with_parent: bool = False, log_json: bool = False, **options: Any
) -> int:
    """Work until drained; answers the exit code. `log_json`: nothing is said but in the log."""
    lifecycle = app.create_worker_lifecycle(options.get("worker_id"))
    signals = Signals(lifecycle)
    with signals:
        return run_loop(_serve(app, lifecycle, options, with_parent, log_json))


def run_loop(work: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            return runner.run(work)
        finally:
            runner.run(_leave())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is one."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _leave() -> None:
    """What a function has left behind may catch its cancel and go on: the exit waits for none of
    it. It is kept from being closed as well: code that catches whatever comes would go on there."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _LEAVING
    while (left := _others()) and (now := loop.time()) < end:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=end - now)  # what they have begun meanwhile: next time
    for task in left:
        logger.warning("left behind, since it goes on although it was cancelled: %r", task)
        asyncio._unregister_task(task)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


def _others() -> "set[asyncio.Task[Any]]":
    return asyncio.all_tasks() - {asyncio.current_task()}


class Signals:
    """The first SIGTERM or SIGINT drains; a SIGINT after that leaves at once. Where somebody else
    asked for the drain, the first SIGINT is still a first one.

    Python's own handlers, not the loop's: they also run while a function blocks the loop.
    """

    def __init__(self, lifecycle: WorkerLifecycle) -> None:
        self._lifecycle = lifecycle
        self._before: dict[signal.Signals, Any] = {}
        self._is_told = False

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._heard)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _heard(self, number: int, _: object) -> None:
        if not self._is_told:
            self._is_told = True
            self._lifecycle.request_drain()
        elif number == signal.SIGINT:
            os.write(2, _LEFT)
            os._exit(Exit.INTERRUPTED)


async def _serve(
    app: Holdfast,
    lifecycle: WorkerLifecycle,
    options: dict[str, Any],
    with_parent: bool,
    log_json: bool,
) -> int:
    if with_parent:
        _drain_with_parent(lifecycle)
    saying = asyncio.create_task(_say_when_draining(lifecycle))
    await _open_patiently(app, lifecycle)
    async with app:
        working = asyncio.create_task(
            app.serve(lifecycle=lifecycle, spawn_suspects=True, **options)
        )
        ready = asyncio.create_task(lifecycle.wait_until_ready())
        await asyncio.wait({working, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        await asyncio.wait({ready})
        if lifecycle.state is WorkerState.READY:
            say = logger.info if log_json else click.echo
            say(_ready_line(app, lifecycle, options))
        await working
    saying.cancel()
    return Exit.OK


async def _say_when_draining(lifecycle: WorkerLifecycle) -> None:
    await lifecycle.wait_until_drain()
    logger.info(
        "draining: what runs is finished, the rest is handed back; Ctrl-C (again) leaves at once"
    )


def _drain_with_parent(lifecycle: WorkerLifecycle) -> None:
    """The parent holds the other end of our stdin: when it is gone, so are we, in good order."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def heard() -> None:
        if not os.read(stdin, 1024):
            loop.remove_reader(stdin)
            lifecycle.request_drain()

    loop.add_reader(stdin, heard)


async def _open_patiently(app: Holdfast, lifecycle: WorkerLifecycle) -> None:
    """A server may take a moment to start; a file is there or not."""
    loop = asyncio.get_running_loop()
    over, said = loop.time() + _PATIENCE, False
    slowest = None if app.home.is_sqlite else _SLOWEST
    while True:
        try:
            async with asyncio.timeout(slowest):
                await app.home.client()
            return
        except StoreUnreachable as error:
            if app.home.is_sqlite or lifecycle.drain_requested or loop.time() + 0.5 > over:
                raise
            if not said:
                logger.warning("%s; trying again for %g s", error, _PATIENCE)
            said = True
        except TimeoutError:
            raise StoreUnreachable(
                f"{app.home.name} did not answer within {_SLOWEST:g} s; check that the server "
                "runs and that its address is right"
            ) from None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await lifecycle.wait_until_drain()


def _ready_line(app: Holdfast, lifecycle: WorkerLifecycle, options: dict[str, Any]) -> str:
    facts = lifecycle.overview()
    kind = app.config.worker_type
    queues = options.get("queues") or app.config.queues or (kind and [kind])
    slots = facts["max_jobs"]
    return (
        f"worker {facts['worker_id']} is ready: queues {', '.join(queues) if queues else 'all'}, "
        f"{slots} {'slot' if slots == 1 else 'slots'}, store {app.home.name}"
    )
