"""One visit of the doctor: from the door inwards, as far as it can get."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from holdfast.cli.asking import Asking, local_app
from holdfast.cli.doctor import fleet, inside
from holdfast.cli.doctor.finding import CHECKS, Finding, fail, ok, skipped
from holdfast.cli.exits import Stop
from holdfast.clock import lap
from holdfast.desk.desk import Desk
from holdfast.desk.leases import all_leases
from holdfast.errors import HoldfastError, StoreError

__all__ = ["Visit"]

_LEASE = timedelta(minutes=5)
_ONLY_WITH_A_STORE = ("HF102", "HF109", "HF201", "HF202", "HF203", "HF301")
_ONLY_POSTGRES = ("HF201", "HF202", "HF203")


class Visit:
    def __init__(self, at: Asking, *, lease: timedelta | None, old_transaction: timedelta) -> None:
        from holdfast.cli.loading import apply

        self._at, self._old = at, old_transaction
        self._lease, self._default = lease, apply().lease or _LEASE

    def run(self) -> list[Finding]:
        """All checks in the order of their codes."""
        found = asyncio.run(self._all())
        return sorted(found, key=lambda finding: finding.code)

    async def _all(self) -> list[Finding]:
        looks = self._remote() if self._at.api else self._local()
        found: list[Finding] = []
        try:
            async for finding in looks:
                found.append(finding)
        except Stop as stop:
            found.append(fail("HF101", stop.message, "check --store, --api and the environment"))
        except HoldfastError as error:
            found.append(fail("HF101", str(error), "see that it runs, and that its URL is right"))
        seen = {finding.code for finding in found}
        return found + [skipped(code, "not looked at") for code in CHECKS if code not in seen]

    async def _remote(self) -> AsyncIterator[Finding]:
        async with self._at.desk() as desk:
            began = lap()
            await desk.stats()
            yield ok("HF101", f"the API answers in {_ms(began)}")
            for code in _ONLY_WITH_A_STORE:
                yield skipped(code, "ask the store itself, with --store")
            async for finding in self._fleet(desk):
                yield finding

    async def _local(self) -> AsyncIterator[Finding]:
        app = local_app(self._at.store)
        async for finding in self._door(app.home.url):
            yield finding
            if finding.status == "fail":
                return
        async with app:
            async for finding in self._fleet(await app.desk()):
                yield finding
            yield await inside.hints(app.home)
            if app.home.is_sqlite:
                for code in _ONLY_POSTGRES:
                    yield skipped(code, "of PostgreSQL only")
                return
            store = (await app.home.client()).store
            for finding in await inside.postgres(store, self._old):
                yield finding

    async def _door(self, url: str) -> AsyncIterator[Finding]:
        from holdfast.cli.schema import standing

        began = lap()
        try:
            made = await standing(url)
        except StoreError as error:
            if "network file system" not in str(error):
                raise
            yield fail("HF301", str(error), "put the file on a local disk, or use PostgreSQL")
            return
        yield ok("HF101", f"answers in {_ms(began)}")
        yield inside.file_system(url)
        yield inside.schema(made)

    async def _fleet(self, desk: Desk) -> AsyncIterator[Finding]:
        yield await fleet.clock(desk)
        workers, queues = await desk.workers(), await desk.queues()
        yield await fleet.lease_length(desk, workers, self._lease, self._default)
        leases = await all_leases(desk)
        yield await fleet.workers_of_queues(desk, queues, workers)
        yield fleet.stale_workers(workers, leases)
        yield fleet.recovery(leases)
        yield fleet.event_loops(workers)


def _ms(began: float) -> str:
    return f"{(lap() - began) * 1000:.0f} ms"
