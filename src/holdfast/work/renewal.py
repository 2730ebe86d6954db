"""Keeping leases alive, in a thread of its own with a connection of its own.

A handler that blocks the event loop, or a claim that waits, never keeps a renewal from being sent.
Where the store does not answer, the work is stopped before its leases can have lapsed.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from holdfast.errors import HoldfastError, StoreUnreachable
from holdfast.observer import Observer
from holdfast.store import Store, WorkerRecord
from holdfast.tasks.task import Lease
from holdfast.work.holding import Holding

__all__ = ["Renewal"]

T = TypeVar("T")

logger = logging.getLogger("holdfast.worker")
_AGAIN = 1.0
PULSE = 1.0


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
        observer: Observer,
        feel: Callable[[], None] = lambda: None,
        company: Callable[[Sequence[WorkerRecord]], None] | None = None,
    ) -> None:
        """`feel` is called every second; `company` hears after each beat who else is there."""
        self._opening, self._holding, self._observer = opening, holding, observer
        self._lease, self._interval, self._beat = lease, interval, beat
        self._record, self._lost, self._cancelled = record, lost, cancelled
        self._feel, self._company = feel, company
        self._said = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._stopping = False
        self._failed = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-renewal", daemon=True)

    async def start(self) -> None:
        """Answers when the worker is registered."""
        self._thread.start()
        await asyncio.to_thread(self._started.wait)

    async def stop(self) -> None:
        """Signs the worker off."""
        self._stopping = True
        self.look_now()
        await asyncio.to_thread(self._thread.join)

    def look_now(self) -> None:
        """Renew at once: somebody may have asked for a cancel."""
        if self._loop and self._wake and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            logger.exception("the renewal thread ended; its worker will lose its leases")
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            store = await self._patiently(
                "open the store", lambda: stack.enter_async_context(self._opening())
            )
            if store is None:
                return
            await self._patiently("register", lambda: store.register(self._record()))
            self._started.set()
            chores = [
                asyncio.create_task(self._every(self._interval, lambda: self._renew(store))),
                asyncio.create_task(self._every(self._beat, lambda: self._say(store))),
                asyncio.create_task(self._watch()),
                asyncio.create_task(self._pulse(store)),
            ]
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if not self._stopping:
                    await self._renew(store)
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)
            with contextlib.suppress(HoldfastError):
                await store.sign_off(self._record().id)

    async def _every(self, interval: timedelta, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(_AGAIN if self._failed else interval.total_seconds())
            await act()

    async def _renew(self, store: Store) -> None:
        held = self._holding.leases()
        if not held:
            self._failed = False
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
        self._observer.renewed([lease.task for lease in kept], answer.lost)
        if answer.lost:
            # What was settled while the renewal was under way is not lost.
            gone = [lease for lease in held if lease.task in answer.lost]
            self._lost(gone)
        if answer.cancel:
            self._cancelled(answer.cancel)

    async def _say(self, store: Store) -> None:
        record = self._record()
        self._said = record.status
        try:
            async with asyncio.timeout(self._beat.total_seconds()):
                asked = await store.beat(record, self._holding.leases())
                if self._company:
                    self._company(await store.workers())
        except (HoldfastError, TimeoutError) as error:
            self._complain("say that the worker lives", error=error)
            return
        if asked:
            self._cancelled(asked)

    async def _pulse(self, store: Store) -> None:
        """Another state than the one last told is told at once."""
        while True:
            self._feel()
            if self._record().status != self._said:
                await self._say(store)
            await asyncio.sleep(PULSE)

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
