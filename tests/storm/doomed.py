"""A worker that may be killed or stopped at any moment: `python -m tests.storm.doomed`.

It keeps a ledger outside of the database, fsynced line by line: "+" and the task's id before work
on it starts, "=" with the fence after the store has accepted its end, "!" where it was refused.
"""

import asyncio
import contextlib
import os
import sys
from datetime import timedelta
from pathlib import Path

from holdfast.errors import StoreUnreachable
from holdfast.ids import new_worker_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Claimed
from tests.storm.processes import open_store

DONE = Settlement(verdict=Verdict.DONE, result=b"null")


class Doomed:
    """Claims, renews, settles in batches; recovers what others left behind."""

    def __init__(self, store: SqlStore, ledger: Path, lease: timedelta, pace: float) -> None:
        self._store, self._lease, self._pace = store, lease, pace
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._me = new_worker_id()

    async def run(self, stop: str) -> None:
        lanes = list((await self._store.lanes()).lanes)
        after = None
        while not os.path.exists(stop):  # noqa: ASYNC240
            await self._store.recover(200)
            answer = await self._store.claim(
                worker=self._me, lanes=lanes, want=50, lease=self._lease, after=after
            )
            after = answer.contended
            if answer.tasks:
                await self._work(answer.tasks)
            elif after is None:
                await asyncio.sleep(0.02)
        await self._store.close()

    async def _work(self, tasks: list[Claimed]) -> None:
        self._write("+", [(str(task.lease.task), task.lease.fence) for task in tasks])
        await asyncio.sleep(self._pace)
        with contextlib.suppress(StoreUnreachable):  # stopped in the middle: no answer in time
            await self._store.renew([task.lease for task in tasks], self._lease)
        await asyncio.sleep(self._pace)
        refused = await self._store.settle([(task.lease, DONE) for task in tasks])
        for mark, wanted in (("=", False), ("!", True)):
            ids = [
                (str(task.lease.task), task.lease.fence)
                for task in tasks
                if (task.lease.task in refused) is wanted
            ]
            self._write(mark, ids)

    def _write(self, mark: str, lines: list[tuple[str, int]]) -> None:
        if lines:
            os.write(self._ledger, "".join(f"{mark} {id} {f}\n" for id, f in lines).encode())
            os.fsync(self._ledger)


async def main(place: str, ledger: str, stop: str, lease: str, pace: str) -> None:
    doomed = Doomed(open_store(place), Path(ledger), timedelta(seconds=float(lease)), float(pace))
    await doomed.run(stop)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
