"""Chores for a fleet that has no worker of its own at the database: whoever claims here, sweeps."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.client import Client
from holdfast.config import first
from holdfast.errors import HoldfastError
from holdfast.notifier import EVERYTHING
from holdfast.observers.many import Many
from holdfast.upkeep.chores import Upkeeping, chores
from holdfast.upkeep.keeping import Chore
from holdfast.upkeep.operations import Driver

__all__ = ["Sweeping"]

logger = logging.getLogger("holdfast.http")
_RECOVERY = timedelta(seconds=2)


class Sweeping:
    """One bounded pass of each chore whose time has come; never two at once. Bulk operations, which
    take as long as they take, are driven beside."""

    def __init__(self, app: Holdfast, client: Callable[[], Awaitable[Client]]) -> None:
        self._app, self._client = app, client
        self._due: dict[str, int] = {}
        self._chores: list[Chore] = []
        self._busy = False
        self._driving: asyncio.Task[None] | None = None

    async def sweep(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            for chore in self._chores or await self._all():
                now = self._app.home.clock.boot()
                if self._due.get(chore.name, 0) <= now:
                    self._due[chore.name] = now + round(chore.every * 1_000_000)
                    if chore.name == "operations":
                        self.drive()
                    else:
                        await chore.sweep()
        except HoldfastError as error:
            logger.warning("a chore failed: %s; it is done a turn later", error)
        finally:
            self._busy = False

    def drive(self) -> None:
        """Bulk operations that nobody drives, until there are none."""
        if self._driving is None or self._driving.done():
            self._driving = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        try:
            client = await self._client()
            driver = Driver(client.store, lambda: client.tell([EVERYTHING]))
            while await driver.sweep():
                pass
        except HoldfastError as error:
            logger.warning("an operation was interrupted: %s; somebody will go on", error)

    async def close(self) -> None:
        if self._driving:
            self._driving.cancel()
            await asyncio.wait({self._driving})

    async def _all(self) -> list[Chore]:
        client, config = await self._client(), self._app.config
        settings = Upkeeping(
            recovery_interval=first(config.recovery_interval, _RECOVERY),
            retention=first(config.retention, timedelta(days=7)),
            dead_letter_retention=config.dead_letter_retention,
            default_tries=self._app.default_tries,
            stuck_after=config.stuck_after,
        )
        self._chores = chores(
            client.store,
            Many(self._app.observers),
            settings,
            lambda: client.tell([EVERYTHING]),
        )
        return self._chores
