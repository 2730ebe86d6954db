"""A bench to put workers on: quick renewals and polls, and ways to look at what is left."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self
from uuid import UUID

from holdfast import Holdfast, TaskHandle, WorkerLifecycle
from holdfast.observer import Observer
from holdfast.store import Store
from holdfast.tasks.task import Attempt
from tests.storm.ledger import peek

WITHIN = 60.0


async def until(
    reached: Callable[[], Any] | Callable[[], Awaitable[Any]], within: float = WITHIN
) -> Any:
    """Wait for a condition, not for a time; answers what it found."""
    async with asyncio.timeout(within):
        while True:
            found = reached()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)


class Bench:
    """One database, an app on it, and as many workers as a test wants."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.place = url.removeprefix("sqlite:///")
        self._apps: list[Holdfast] = []
        self._working: list[tuple[asyncio.Task[None], WorkerLifecycle]] = []
        self.app = self.new_app()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for _task, lifecycle in self._working:
            lifecycle.request_drain()
        for task, _lifecycle in self._working:
            await asyncio.wait({task}, timeout=60)
            assert task.done(), "a worker does not come to its end"
        for app in self._apps:
            await app.close()

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    def new_app(self, url: str | None = None, **options: Any) -> Holdfast:
        app = Holdfast(url or self.url, **options)
        self._apps.append(app)
        return app

    async def start(
        self, app: Holdfast | None = None, **options: Any
    ) -> tuple[asyncio.Task[None], WorkerLifecycle]:
        """A worker that is ready; ended with the bench. It renews and recovers often, but its
        leases are long: a machine that stands still for seconds loses none of them."""
        app = app or self.app
        wanted: dict[str, Any] = {
            "lease_duration": 600.0,
            "heartbeat_interval": 0.2,
            "recovery_interval": 0.2,
            "poll_interval": 0.02,
            "poll_interval_max": 0.1,
            "drain_timeout": 30.0,
            "max_concurrency": 10,
        }
        lifecycle = app.create_worker_lifecycle(name=f"w{len(self._working)}")
        working = asyncio.create_task(app.serve(**wanted | options, lifecycle=lifecycle))
        self._working.append((working, lifecycle))
        ready = asyncio.create_task(lifecycle.wait_until_ready())
        await asyncio.wait({ready, working}, return_when=asyncio.FIRST_COMPLETED, timeout=WITHIN)
        ready.cancel()
        if working.done():
            working.result()
        return working, lifecycle

    @contextlib.asynccontextmanager
    async def worker(
        self, app: Holdfast | None = None, **options: Any
    ) -> AsyncIterator[WorkerLifecycle]:
        working, lifecycle = await self.start(app, **options)
        try:
            yield lifecycle
        finally:
            lifecycle.request_drain()
            async with asyncio.timeout(60):
                await working

    async def store(self) -> Store:
        return (await self.app.home.client()).store

    async def history(self, task: TaskHandle[Any] | UUID) -> list[Attempt]:
        store = await self.store()
        return await store.attempts(task.id if isinstance(task, TaskHandle) else task)

    async def ends(self, task: TaskHandle[Any] | UUID) -> list[str | None]:
        return [attempt.ended for attempt in await self.history(task)]

    def leases(self) -> int:
        return int(peek(self.place, "select count(*) from {s}lease")[0][0])

    def lapse(self, task: UUID) -> None:
        """Let its lease have ended long ago, as if its worker had slept."""
        if self.is_sqlite:
            self._write("update lease set boot_end = 0 where id = ?", task.bytes)
        else:
            self._write(
                "update holdfast.lease set lease_timeout = now() - interval '1 hour' where id = %s",
                task,
            )

    def _write(self, sql: str, *values: Any) -> None:
        if self.is_sqlite:
            import apsw

            connection = apsw.Connection(self.place)
            connection.set_busy_timeout(60_000)
            connection.execute(sql, values)
            connection.close()
        else:
            import psycopg

            with psycopg.connect(self.url, autocommit=True) as conn:
                conn.execute(sql, values)


class Watcher(Observer):
    """Remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def claimed(self, tasks: Any) -> None:
        self.heard.append(("claimed", [task.lease.task for task in tasks]))

    def settled(self, ended: Any, refused: Any) -> None:
        self.heard.append(("settled", list(ended), refused))

    def renewed(self, kept: Any, lost: Any) -> None:
        self.heard.append(("renewed", list(kept), lost))

    def renewal_failed(self, held: Any) -> None:
        self.heard.append(("renewal_failed", list(held)))

    def recovered(self, tasks: Any) -> None:
        self.heard.append(("recovered", list(tasks)))

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [news for news in self.heard if news[0] == kind]
