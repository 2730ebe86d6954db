"""A store that takes its time to write some entries of a journal, or counts how often it writes."""

import asyncio
from typing import Any, cast

from holdfast.store import Store
from tests.work.bench import Bench

__all__ = ["counted_commits", "slow_commits"]


class _Watched:
    """Everything but `record` as it is: that answers so much later, once it is written."""

    def __init__(self, store: Store, kind: str = "", seconds: float = 0.0) -> None:
        self._store, self._kind, self._seconds = store, kind, seconds
        self.commits: list[Any] = []

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def record(self, lease: Any, steps: Any, **more: Any) -> Any:
        found = await self._store.record(lease, steps, **more)
        self.commits.append(steps)
        if any(step.kind == self._kind for step in steps):
            await asyncio.sleep(self._seconds)
        return found


async def slow_commits(bench: Bench, *, of: str, by: float) -> None:
    """For the workers of the bench's app from now on."""
    client = await bench.app.home.client()
    client.store = cast(Store, _Watched(client.store, of, by))


async def counted_commits(bench: Bench) -> list[Any]:
    client = await bench.app.home.client()
    watched = _Watched(client.store)
    client.store = cast(Store, watched)
    return watched.commits
