"""The transaction in which a function writes its own rows and, as it returns, its task's end."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from holdfast.errors import HoldfastError, LeaseLost, StoreUnreachable
from holdfast.store import Store
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Lease
from holdfast.work.holding import Holding

__all__ = ["Transaction"]

logger = logging.getLogger("holdfast.worker")


class Transaction:
    """One for each attempt. It stays open from its block to the end of the function."""

    def __init__(
        self, store: Store, lease: Lease, holding: Holding, *, is_kept: Callable[[], bool]
    ) -> None:
        """`is_kept`: whether what leaves its block by an error is the end of the function."""
        self._store, self._lease, self._holding = store, lease, holding
        self._is_kept = is_kept
        self._open: AsyncExitStack | None = None
        self._conn: Any = None

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
        if self._conn is not None:
            raise HoldfastError("a task has one transaction: the one that ends it")
        async with AsyncExitStack() as stack:
            self._conn = await stack.enter_async_context(self._store.transaction())
            try:
                yield self._conn
            except BaseException:
                if self._is_kept():
                    self._open = stack.pop_all()
                raise
            self._open = stack.pop_all()

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
        if self._open is not None:
            stack, self._open = self._open, None
            with suppress(HoldfastError):
                await stack.__aexit__(type(error), error, error.__traceback__)
