"""The transaction in which a function writes its own rows and, as it returns, its task's end."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from holdfast.errors import HoldfastError, LeaseLost, StoreUnreachable
from holdfast.store import Store
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Lease
from holdfast.work.holding import Holding

__all__ = ["Transaction"]

logger = logging.getLogger("holdfast.worker")

_PATIENCE = 60.0  # seconds that a branch has to leave the block in which it began anew


class Transaction:
    """One for each attempt. It stays open from its block to the end of the function."""

    def __init__(self, store: Store, lease: Lease, holding: Holding) -> None:
        self._store, self._lease, self._holding = store, lease, holding
        self._open: AsyncExitStack | None = None
        self._conn: Any = None
        self._inside: asyncio.Task[Any] | None = None  # that stands in the block
        self._left = asyncio.Event()
        self._has_begun = self._begins_anew = self._is_end = self._is_over = False

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        if self._store.one_writer:
            raise HoldfastError(
                "current().transaction() needs PostgreSQL: on SQLite it would keep everybody else "
                "from writing while the function runs"
            )
        if self._has_begun:
            raise HoldfastError("a task has one transaction: the one that ends it")
        self._has_begun = True  # before anything is awaited: another branch may come meanwhile
        try:
            async with self._block() as conn:
                yield conn
        finally:
            self._has_begun = self._conn is not None
            self._left.set()

    @asynccontextmanager
    async def _block(self) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            self._conn = await stack.enter_async_context(self._store.transaction())
            self._inside = asyncio.current_task()
            self._left.clear()
            try:
                yield self._conn
            except BaseException as error:
                if self._is_kept(error):
                    self._open = stack.pop_all()
                elif self._begins_anew and not self._is_over:
                    self._warn()
                raise
            finally:
                self._inside = None
            if self._is_over:
                raise HoldfastError("the attempt ended before this block did: it is rolled back")
            self._open = stack.pop_all()

    def begin_anew(self) -> None:
        """The branch that runs calls `continue_as_new`, which ends its block. What another one has
        written by now may be half of its work."""
        self._begins_anew = True
        self._is_end = self._inside is not None and self._inside is asyncio.current_task()

    def _is_kept(self, error: BaseException) -> bool:
        return self._is_end and not self._is_over and isinstance(error, asyncio.CancelledError)

    async def left(self) -> bool:
        """A branch that began anew, or the coroutine of a thread, leaves its block only when the
        function has ended. False: it does not. Whoever has ended and left a generator open inside
        it is not waited for."""
        inside = self._inside
        if not self._is_end or inside is asyncio.current_task():
            return True
        if inside:
            inside.add_done_callback(lambda _: self._left.set())
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._left.wait()
        except TimeoutError:
            logger.error("task %s stays where it began anew; it runs again", self._lease.task)
            return False
        return True

    def end(self) -> bool:
        """Whoever stands in the block now is too late. Whether there is something to commit."""
        self._is_over = True
        if self._inside:
            self._warn()
        return self.is_open

    def _warn(self) -> None:
        logger.warning(
            "task %s: its run ends without the rows of its transaction, whose block is cut short",
            self._lease.task,
        )

    async def commit(self, settlement: Settlement) -> bool:
        """With the task's end. False: the lease is lost, or nobody knows whether it was committed;
        then nothing more may be written."""
        assert self._open is not None
        stack, self._open = self._open, None
        try:
            # A renewal that crosses the commit would find the lease gone, and call it lost.
            with self._holding.at_rest([self._lease]):
                async with stack:
                    await self._store.settle([(self._lease, settlement)], conn=self._conn)
        except LeaseLost:
            logger.warning("task %s: its lease is lost, all is rolled back", self._lease.task)
            return False
        except StoreUnreachable as error:  # any other error was the server's answer: rolled back
            logger.warning(
                "task %s: its commit was not heard of (%s); it runs again if there was none",
                self._lease.task,
                error,
            )
            return False
        return True

    async def roll_back(self, error: BaseException) -> None:
        self._is_over = True
        if self._open is not None:
            stack, self._open = self._open, None
            with suppress(HoldfastError):
                await stack.__aexit__(type(error), error, error.__traceback__)
