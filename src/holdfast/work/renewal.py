"""Keeping leases alive, in a thread of its own with a connection of its own.

A handler that blocks the event loop, or a claim that waits, never keeps a renewal from being sent.
Where the store does not answer, the work is stopped before its leases can have lapsed.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from holdfast.answers import WorkerRecord
from holdfast.errors import HoldfastError, StoreUnreachable
from holdfast.observer import Observer
from holdfast.store import Store
from holdfast.tasks.task import Lease
from holdfast.work.holding import Holding

__all__ = ["Renewal"]

T = TypeVar("T")

logger = logging.getLogger("holdfast.worker")
_AGAIN = 1.0
PULSE = 1.0
_NEWS = 5.0  # seconds from one beat to the next, where there is something to tell
_FAREWELL = 5.0


class Renewal:
    """Renews all that is held every `interval`, and says every `beat` that the worker lives.

    `lost` and `cancelled` are called in this thread, with leases and task ids.
    """

    def __init__(
        self,
        *,
        opening: Callable[[], AbstractAsyncContextManager[Store]],
        holding: Holding,
        lease: timedelta,
        interval: timedelta,
        beat: timedelta,
        record: Callable[[], WorkerRecord],
        lost: Callable[[Sequence[Lease]], None],
        cancelled: Callable[[frozenset[UUID]], None],
        drain: Callable[[], None],
        observer: Observer,
        feel: Callable[[], None] = lambda: None,
        company: Callable[[Sequence[WorkerRecord]], None] | None = None,
    ) -> None:
        """`drain`: somebody wants the worker to leave. `feel` is called every second; `company`
        hears after each beat who else is there."""
        self._opening, self._holding, self._observer = opening, holding, observer
        self._lease, self._interval, self._beat = lease, interval, beat
        self._record, self._lost, self._cancelled = record, lost, cancelled
        self._feel, self._company, self._drain = feel, company, drain
        self._said: WorkerRecord | None = None
        self._said_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake, self._end = asyncio.Event(), asyncio.Event()  # of its own loop
        self._stopping = False
        self._failed = False
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="holdfast-renewal", daemon=True)

    async def start(self) -> None:
        """Answers when the worker is registered."""
        self._thread.start()
        await asyncio.wrap_future(self._started)

    async def stop(self) -> None:
        """Signs the worker off."""
        self._stopping = True
        self._tell(self._end)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def look_now(self) -> None:
        """Renew at once: somebody may have asked for a cancel."""
        self._tell(self._wake)

    def say_now(self) -> None:
        """Beat at the next pulse: something may be wanted of the worker."""
        self._said = None

    def _tell(self, event: asyncio.Event) -> None:
        if self._loop:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(event.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:
            if self._started.done():
                logger.exception("the renewal thread ended; its worker will lose its leases")
            else:
                self._started.set_exception(error)
        finally:
            if not self._started.done():
                self._started.cancel()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            store = await self._patiently(
                "open the store", lambda: stack.enter_async_context(self._opening())
            )
            if store is None:
                return
            await self._patiently("register", lambda: store.register(self._record()))
            if not self._started.set_running_or_notify_cancel():
                return  # nobody waits for it any more
            self._started.set_result(None)
            chores = [
                asyncio.create_task(self._every(self._interval, lambda: self._renew(store))),
                asyncio.create_task(self._when_asked(lambda: self._renew(store))),
                asyncio.create_task(self._every(self._beat, lambda: self._say(store))),
                asyncio.create_task(self._watch()),
                asyncio.create_task(self._pulse(store)),
            ]
            while not self._stopping:
                await self._end.wait()
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await store.sign_off(self._record().id)

    async def _every(self, interval: timedelta, act: Callable[[], Awaitable[None]]) -> None:
        seconds = interval.total_seconds()
        while True:
            await asyncio.sleep(min(_AGAIN, seconds) if self._failed else seconds)
            await self._safely(act)

    async def _when_asked(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._safely(act)

    async def _safely(self, act: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong, the next renewal must be sent."""
        try:
            await act()
        except Exception:
            logger.exception("a renewal failed; the next one is tried")

    async def _renew(self, store: Store) -> None:
        held = self._holding.leases()
        if not held:
            return
        sent = self._holding.now()
        try:
            async with asyncio.timeout(self._lease.total_seconds() / 3):
                answer = await store.renew(held, self._lease)
        except (HoldfastError, TimeoutError) as error:
            self._complain("renew %d leases", len(held), error=error)
            self._observer.renewal_failed([lease.task for lease in held])
            return
        self._recovered()
        kept = [lease for lease in held if lease.task not in answer.lost]
        self._holding.renewed(kept, sent)
        # What was settled while the renewal was under way is not lost.
        gone = self._holding.still(lease for lease in held if lease.task in answer.lost)
        if gone:
            self._lost(gone)
        if answer.cancel:
            self._cancelled(answer.cancel)
        self._observer.renewed(
            [lease.task for lease in kept], frozenset(lease.task for lease in gone)
        )

    async def _say(self, store: Store, *, only_numbers: bool = False) -> None:
        """Who else is there is not asked with numbers alone: all busy workers would ask for all."""
        record = self._record()
        self._said, self._said_at = record, asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._beat.total_seconds()):
                if self._company and not only_numbers:
                    self._company(await store.workers(counted=False))
                asked = await store.beat(record, self._holding.leases())
        except (HoldfastError, TimeoutError) as error:
            self._complain("say that the worker lives", error=error)
            return
        self._recovered()
        if asked.cancel:
            self._cancelled(asked.cancel)
        if asked.drain:
            self._drain()

    async def _pulse(self, store: Store) -> None:
        """Another state than the one last told is told at once, and so are new functions; other
        numbers, after a while: who looks at the fleet should not see what was true a beat ago."""
        while True:
            self._feel()
            record, said = self._record(), self._said
            if said is None or (record.status, record.types) != (said.status, said.types):
                await self._safely(lambda: self._say(store))
            elif self._is_old() and _numbers(record) != _numbers(said):
                await self._safely(lambda: self._say(store, only_numbers=True))
            await asyncio.sleep(PULSE)

    def _is_old(self) -> bool:
        return asyncio.get_running_loop().time() - self._said_at >= _NEWS

    async def _watch(self) -> None:
        """Stop what could not be renewed, before its lease can have lapsed."""
        longest = max(0.05, self._lease.total_seconds() / 20)
        while True:
            left = self._holding.next_deadline()
            await asyncio.sleep(longest if left is None else min(left, longest) + 0.001)
            if overdue := self._holding.overdue():
                logger.error(
                    "%d leases could not be renewed in time; their tasks are stopped, and will be "
                    "run again by whoever reaches the store",
                    len(overdue),
                )
                self._holding.drop(overdue)  # said once, also where the worker's loop is blocked
                self._lost(overdue)

    async def _patiently(self, what: str, act: Callable[[], Awaitable[T]]) -> T | None:
        """Until it succeeds, or nobody wants it any more."""
        while not self._stopping:
            try:
                answer = await act()
            except StoreUnreachable as error:
                self._complain(what, error=error)
                await asyncio.sleep(_AGAIN)
            else:
                self._recovered()
                return answer
        return None

    def _complain(self, what: str, *args: object, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            logger.warning("could not " + what + ": %s; trying again", *args, error)

    def _recovered(self) -> None:
        if self._failed:
            self._failed = False
            logger.info("the store answers again")


def _numbers(record: WorkerRecord) -> tuple[float, ...]:
    return record.tasks_acquired, record.tasks_recovered, record.poll_interval
