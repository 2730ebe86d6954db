"""The one store: all its parts over one driver."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast.errors import LeaseLost, StoreError
from holdfast.stores.audits import Audits
from holdfast.stores.driver import Driver
from holdfast.stores.editing import Edits
from holdfast.stores.flows import Flows
from holdfast.stores.keys import Keys
from holdfast.stores.logs import Logs
from holdfast.stores.operations import Operations
from holdfast.stores.requests import Requests
from holdfast.stores.rollups import Rollups
from holdfast.stores.schedules import Schedules
from holdfast.stores.steering import Steering
from holdfast.stores.upkeep import Upkeep
from holdfast.tasks.names import check_name

__all__ = ["SqlStore"]


class SqlStore(
    Upkeep, Flows, Steering, Schedules, Edits, Keys, Audits, Requests, Logs, Operations, Rollups
):
    """Keeps `holdfast.store.Store`."""

    def __init__(self, driver: Driver, *, share_commits: bool = True) -> None:
        super().__init__(driver, share_commits=share_commits)

    @property
    def one_writer(self) -> bool:
        return self._driver.one_writer

    def as_tenant(self, tenant: str | None) -> "SqlStore":
        return SqlStore(
            self._driver.as_tenant("*" if tenant is None else check_name("tenant", tenant))
        )

    async def wall(self, role: str) -> None:
        await self._call("wall", role=role)

    async def is_walled(self) -> bool:
        return bool(await self._value("is_walled"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        try:
            async with self._driver.transaction() as conn:
                self._owed[conn] = frozenset()
                try:
                    yield conn
                finally:
                    wakes = self._owed.pop(conn)
        except LeaseLost as lost:
            if lost.leases and self._driver.one_writer:
                await self._really_refused(list(lost.leases))
            raise
        with suppress(StoreError):  # it is committed; a sweep wakes them too
            await self._wake(wakes)

    async def query(self, sql: str) -> tuple[list[str], list[Any]]:
        return await self._driver.query(sql)

    async def migrate(self) -> int:
        return await self._driver.migrate()

    async def close(self) -> None:
        await self._driver.close()
