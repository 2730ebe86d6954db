"""A store that takes its time to write some entries of a journal."""

import asyncio
from typing import Any, cast

from holdfast.store import Store
from tests.work.bench import Bench

__all__ = ["slow_commits"]


class _Slow:
    """Everything but `record` as it is: that answers so much later, once it is written."""

    def __init__(self, store: Store, kind: str, seconds: float) -> None:
        self._store, self._kind, self._seconds = store, kind, seconds

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def record(self, lease: Any, steps: Any, **more: Any) -> Any:
        found = await self._store.record(lease, steps, **more)
        if any(step.kind == self._kind for step in steps):
            await asyncio.sleep(self._seconds)
        return found


async def slow_commits(bench: Bench, *, of: str, by: float) -> None:
    """For the workers of the bench's app from now on."""
    client = await bench.app.home.client()
    client.store = cast(Store, _Slow(client.store, of, by))
