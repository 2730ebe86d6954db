"""Writing how attempts ended. Whatever ends while the last commit is in flight goes into the next:
batches grow with the load, and a lone task waits for nobody."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from holdfast.errors import StoreError
from holdfast.observer import Ended, Observer
from holdfast.store import Working
from holdfast.work.holding import Holding

__all__ = ["Settling"]

logger = logging.getLogger("holdfast.worker")
_MOST = 1000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Settling:
    """One batch in flight at a time; `written` is told of each."""

    def __init__(
        self,
        store: Working,
        holding: Holding,
        observer: Observer,
        *,
        default_tries: int,
        written: Callable[[Sequence[Ended]], None],
    ) -> None:
        self._store, self._holding, self._observer = store, holding, observer
        self._default_tries, self._written = default_tries, written
        self._pending: list[Ended] = []
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, ended: Ended) -> None:
        self._pending.append(ended)
        self._empty.clear()
        self._wake.set()

    def note(self, ended: Ended) -> None:
        """It was written elsewhere."""
        self._holding.drop([ended.task.lease])
        self._observer.settled([ended], frozenset())
        self._written([ended])

    async def flush(self) -> None:
        """Until everything is written."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                await self._write(self._batch())
            self._empty.set()

    def _batch(self) -> list[Ended]:
        """What goes next. Of one task an old and a new grant may both have ended: the store answers
        by task, so they never go together."""
        batch: dict[UUID, Ended] = {}
        rest = []
        for ended in self._pending:
            task = ended.task.lease.task
            if len(batch) < _MOST and task not in batch:
                batch[task] = ended
            else:
                rest.append(ended)
        self._pending = rest
        return list(batch.values())

    async def _write(self, batch: list[Ended]) -> None:
        leases = [ended.task.lease for ended in batch]
        pause = _FIRST_PAUSE
        refused: frozenset[UUID] | None = None
        while refused is None:
            # A renewal that crosses the settle would find them gone, and call them lost.
            self._holding.rest(leases)
            try:
                refused = await self._store.settle(
                    [(ended.task.lease, ended.settlement) for ended in batch],
                    default_tries=self._default_tries,
                )
            except StoreError as error:
                # Asking again is harmless: a settle that was written already is accepted.
                if pause == _FIRST_PAUSE:
                    logger.warning("could not settle %d tasks: %s; trying again", len(batch), error)
                self._holding.resume(leases)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception:  # such as a value that the database cannot hold
                await self._write_apart(batch)
                return
        self._holding.drop(leases)
        for task in refused:
            logger.warning("task %s: its result came too late and was refused", task)
        self._observer.settled(batch, refused)
        self._written(batch)

    async def _write_apart(self, batch: list[Ended]) -> None:
        """One bad one must not fail the others."""
        if len(batch) == 1:
            logger.exception("task %s cannot be settled", batch[0].task.lease.task)
            self._holding.drop([batch[0].task.lease])
            self._written(batch)
            return
        for ended in batch:
            await self._write([ended])
