"""Tasks that are lost together, and who meets whom afterwards."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast import TaskHandle
from tests.work.bench import Bench

LONG = timedelta(minutes=10)


async def lose_in_company(bench: Bench, tasks: Sequence[TaskHandle[Any]], times: int = 2) -> None:
    """A worker died with all of them, and the next one too: each must run alone from now on."""
    store = await bench.store()
    lanes = list((await store.lanes()).lanes)
    for worker in range(13, 13 + times):
        answer = await store.claim(worker=worker, lanes=lanes, want=len(tasks), lease=LONG)
        assert {task.lease.task for task in answer.tasks} == {task.id for task in tasks}
        for task in tasks:
            bench.lapse(task.id)
        assert len(await store.recover()) == len(tasks)


class Company:
    """Who was inside together with whom."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.met: dict[int, set[int]] = {}

    async def visit(self, i: int) -> None:
        self.inside.add(i)
        for one in self.inside:
            self.met.setdefault(one, set()).update(self.inside - {one})
        await asyncio.sleep(0.2 if i < 3 else 0.02)
        self.inside.remove(i)
        self.met.setdefault(i, set()).update(self.inside)
