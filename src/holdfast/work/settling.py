"""Writing how attempts ended. Whatever ends while the last commit is in flight goes into the next:
batches grow with the load, and a lone task waits for nobody."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate
from uuid import UUID

from holdfast.errors import StoreError, StoreUnreachable
from holdfast.observer import Ended, Observer
from holdfast.store import Store, Working
from holdfast.tasks.lifecycle import Errored, Facts, Verdict, settle
from holdfast.tasks.task import Failure, Lease
from holdfast.work.holding import Holding
from holdfast.work.logs import TaskLogs

__all__ = ["Settling", "orphans_of"]

logger = logging.getLogger("holdfast.worker")
_MOST = 2000
_MOST_BYTES = 16 << 20  # of results, unless a single one has more
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_MOST_ERRORS = 7  # in a row, from a store that answers: then each is written by itself
_MOST_INSISTED = 150  # in a row, each two seconds after the last: five minutes


class Settling:
    """One batch in flight at a time; `written` is told of each."""

    def __init__(
        self,
        store: Working,
        holding: Holding,
        observer: Observer,
        *,
        default_tries: int,
        written: Callable[[Sequence[Ended], frozenset[UUID]], None],
        is_awake: Callable[[UUID], bool] = lambda task: False,
        logs: TaskLogs | None = None,
    ) -> None:
        self._store, self._holding, self._observer = store, holding, observer
        self._default_tries, self._written = default_tries, written
        self._is_awake, self._logs = is_awake, logs
        self._pending: list[Ended] = []
        self._wake = asyncio.Event()
        self._insisting: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, ended: Ended) -> None:
        if not self._pending:  # else it is known that there is something to write
            self._empty.clear()
            self._wake.set()
        self._pending.append(ended)

    async def keep_logs(self, lease: Lease) -> None:
        """Of one whose end is about to be written elsewhere."""
        if self._logs:
            await self._logs.write([lease])

    def note(self, ended: Ended) -> None:
        """It was written elsewhere."""
        self._holding.drop([ended.task.lease])
        if self._logs:
            self._logs.forget([ended.task.lease])
        self._observer.settled([ended], frozenset())
        self._written([ended], frozenset())

    async def flush(self) -> None:
        """Until everything is written."""
        await self._empty.wait()
        while self._insisting:
            await asyncio.wait(self._insisting)

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
        count = self._fitting()
        batch, self._pending = self._pending[:count], self._pending[count:]
        first = {ended.task.lease.task.int: ended for ended in reversed(batch)}
        if len(first) < len(batch):
            again = [ended for ended in batch if first[ended.task.lease.task.int] is not ended]
            self._pending = again + self._pending
            batch = [ended for ended in batch if first[ended.task.lease.task.int] is ended]
        return batch

    def _fitting(self) -> int:
        """How many of the first go together."""
        sizes = [len(ended.settlement.result or b"") for ended in self._pending[:_MOST]]
        if sum(sizes) <= _MOST_BYTES:
            return len(sizes)
        return max(1, bisect_right(list(accumulate(sizes)), _MOST_BYTES))

    async def _write(self, batch: list[Ended]) -> None:
        try:
            await self._settle(batch, _MOST_ERRORS)
        except Exception as error:
            await self._write_apart(batch, error)

    async def _settle(self, batch: list[Ended], most_errors: int) -> None:
        """A store that does not answer is asked again for ever, and the leases are kept; one that
        refuses is not. Asking again is harmless: a settle that was written already is accepted."""
        leases = [ended.task.lease for ended in batch]
        pause, errors = _FIRST_PAUSE, 0
        refused: frozenset[UUID] | None = None
        if self._logs:
            await self._logs.write(leases)  # later they may not
        while refused is None:
            # A renewal that crosses the settle would find them gone, and call them lost.
            self._holding.rest(leases)
            try:
                refused = await self._store.settle(
                    [(ended.task.lease, ended.settlement) for ended in batch],
                    default_tries=self._default_tries,
                    is_awake=self._is_awake,
                )
            except Exception as error:
                self._holding.resume(leases)
                if not isinstance(error, StoreError):
                    raise
                errors = 0 if isinstance(error, StoreUnreachable) else errors + 1
                if errors >= most_errors:
                    raise
                if pause == _FIRST_PAUSE:
                    logger.warning("could not settle %d tasks: %s; trying again", len(batch), error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        self._holding.drop(leases)
        if self._logs:
            self._logs.forget(leases)
        for task in refused:
            logger.warning("task %s: its result came too late and was refused", task)
        self._observer.settled(batch, refused)
        self._written(batch, refused)

    async def _write_apart(self, batch: list[Ended], error: Exception) -> None:
        """One bad one must not fail the others."""
        for ended in batch:
            try:
                if len(batch) > 1:
                    await self._settle([ended], 1)
                    continue
            except Exception as own:
                error = own
            if isinstance(error, StoreError):
                self._insist_on(ended)
            else:
                await self._write_as_error(ended, error)

    def _insist_on(self, ended: Ended) -> None:
        """A store that answers and refuses, as a full disk or a standby does, may take it later.
        Beside all others: they may be taken at once."""
        insisting = asyncio.create_task(self._insist(ended))
        self._insisting.add(insisting)
        insisting.add_done_callback(self._insisting.discard)

    async def _insist(self, ended: Ended) -> None:
        try:
            await self._settle([ended], _MOST_INSISTED)
        except StoreError as error:
            self._let_go(ended, error)
        except Exception as error:
            await self._write_as_error(ended, error)

    async def _write_as_error(self, ended: Ended, error: Exception) -> None:
        """What the store will never take, such as a value that it cannot hold, is an error of its
        task."""
        logger.error("task %s: its result could not be stored: %s", ended.task.lease.task, error)
        try:
            await self._settle([self._failed(ended, error)], 1)
        except Exception as own:
            self._let_go(ended, own)

    def _let_go(self, ended: Ended, error: Exception) -> None:
        """Nothing is written: its lease lapses, and it is lost like any other."""
        task = ended.task.lease.task
        logger.error("task %s cannot be settled; its lease is let go: %s", task, error)
        self._holding.drop([ended.task.lease])
        self._written([], frozenset())

    def _failed(self, ended: Ended, error: Exception) -> Ended:
        task = ended.task
        facts = Facts(
            tries=task.tries,
            max_tries=task.max_tries or self._default_tries,
            retry=task.retry,
            alone=task.alone,
            cancel_requested=task.cancel_requested,
            expired=task.expired,
        )
        said = f"its result could not be stored: {type(error).__name__}: {error}"
        outcome = Errored(Failure(type="ResultNotStored", message=said[:1000]))
        return Ended(task, settle(facts, outcome), ended.seconds, ended.orphans)


async def orphans_of(
    batch: Sequence[Ended], store: Store
) -> AsyncIterator[tuple[Sequence[UUID], bool]]:
    """All of them, and whether their parents left them when they ended; else these began anew."""
    if left := [id for ended in batch if ended.settlement.verdict.final for id in ended.orphans]:
        yield left, True
    for ended in batch:
        if ended.orphans and not ended.settlement.verdict.final:
            yield ended.orphans, not await _began_anew(ended.task.lease, store)


async def _began_anew(lease: Lease, store: Store) -> bool:
    """As the history says: the database ends what was cancelled, or is too late, and the next life
    of that has the same children."""
    attempts = await store.attempts(lease.task, fence=lease.fence)
    return any(attempt.ended == Verdict.SNOOZED for attempt in attempts)
