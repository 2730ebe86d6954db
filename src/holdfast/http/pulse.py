"""Whether this process can do its work: asked by many, looked at once a second."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.client import Client
from holdfast.errors import HoldfastError
from holdfast.explain import LIVE

__all__ = ["Health", "Pulse"]

_FOR = 1_000_000  # microseconds
_PATIENCE = 5.0  # seconds


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: healthy not_ready draining unhealthy."""

    status: str
    worker_id: str | None
    workers: list[str]
    checks: dict[str, str]


class Pulse:
    def __init__(self, app: Holdfast, client: Callable[[], Awaitable[Client]]) -> None:
        self._app, self._client = app, client
        self._seen: tuple[int, bool] | None = None
        self._looking: asyncio.Task[bool] | None = None
        self._fleet: Counter[str] = Counter()
        self.started = False

    async def store_answers(self) -> bool:
        now = self._app.home.clock.boot()
        if self._seen and now - self._seen[0] < _FOR:
            return self._seen[1]
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE):
                workers = await (await self._client()).store.workers(counted=False)
            self._fleet = Counter(w.status for w in workers if w.tenant is None)
            found = self.started = True
        except (HoldfastError, TimeoutError, OSError):
            found = False
        self._seen = (self._app.home.clock.boot(), found)
        return found

    async def health(self) -> Health:
        """Of the workers in this process, where there are any; of the API else."""
        answers = await self.store_answers()
        local: dict[str, Any] = self._app.worker_status_overview()
        workers = [one.get("worker_id") or one["name"] for one in local["workers"]]
        if not answers:
            status = "unhealthy"
        elif local["draining"]:
            status = "draining"
        elif workers and not local["ready"]:
            status = "not_ready"
        else:
            status = "healthy"
        return Health(
            status=status,
            worker_id=workers[0] if workers else None,
            workers=workers,
            checks=self._checks(answers, alone=not workers),
        )

    def _checks(self, answers: bool, *, alone: bool) -> dict[str, str]:
        """An API without a worker of its own says how the fleet is."""
        checks = {"store": "ok" if answers else "unreachable"}
        if alone and answers:
            active = sum(self._fleet[status] for status in LIVE)
            draining, stale = self._fleet["draining"], self._fleet["stale"]
            checks["fleet"] = f"{active} active, {draining} draining, {stale} stale"
        return checks
