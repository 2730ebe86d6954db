"""The way from a process to the database: where it may be overtaken, crash or lose an answer."""

from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any
from uuid import UUID

import apsw

from holdfast.clock import ManualClock
from holdfast.errors import StoreError, StoreUnreachable
from holdfast.stores.driver import DuplicateTask, Row
from holdfast.stores.sqlite.driver import SqliteDriver
from tests.simulation.ledger import Ledger
from tests.simulation.world import Process, World, rest


class Base:
    """One migrated database in memory, emptied for each seed: a new one would cost as much."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.driver = SqliteDriver(":memory:", clock=self.clock, inline=True)
        at_once(self.driver.migrate())
        self.conn: apsw.Connection = self.driver._own()._conn
        tables = self.conn.execute("select name from sqlite_schema where type = 'table'").fetchall()
        self._tables = [name for (name,) in tables if name != "migration"]

    def fresh(self) -> None:
        """As after the migration, at the beginning of time."""
        ManualClock.__init__(self.clock)
        with self.conn:
            for table in self._tables:
                self.conn.execute(f"delete from {table}")
            self.conn.execute("insert into counter values ('place', 0), ('event', 0)")
            self.conn.execute("insert into lane_change values (0)")


def at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """Run to its end what never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the driver waited for something")


class Line:
    """A driver for one process, over the one database that all share."""

    one_writer = True

    def __init__(self, world: World, process: Process, ledger: Ledger, base: Base) -> None:
        self._world, self._process, self._ledger, self._base = world, process, ledger, base

    def as_tenant(self, tenant: str) -> "Line":
        return self

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        world = self._world
        if world.calm:
            return self._perform(verb, parameters)
        await rest(world.trouble(self._process))
        if world.chance(world.plan.cut):
            self._cut(verb, parameters)
        rows = self._perform(verb, parameters)
        if world.chance(world.plan.drop):
            world.tell(self._process, f"the answer to {verb} was lost")
            world.sometimes(f"the answer to {verb} was lost")
            raise StoreUnreachable("the answer was lost")
        await rest(world.trouble(self._process))
        if verb == "lapsed" and rows and world.plan.slow_recovery:
            await rest(world.rng.uniform(0.0, world.plan.lease / 3))
        return rows

    def _perform(self, verb: str, parameters: dict[str, Any]) -> Sequence[Row]:
        if self._world.verbose:
            self._world.tell(self._process, f"{verb} {_asked(parameters)}")
        try:
            rows: Sequence[Row] = at_once(self._base.driver.call(verb, **parameters))
        except DuplicateTask:
            self._ledger.check(self._process, verb, parameters, None)
            raise
        self._ledger.check(self._process, verb, parameters, rows)
        return rows

    def _cut(self, verb: str, parameters: dict[str, Any]) -> None:
        """It ran, but its commit failed."""
        self._world.tell(self._process, f"{verb} was cut off in its commit")
        self._base.conn.set_commit_hook(lambda: True)
        try:
            at_once(self._base.driver.call(verb, **parameters))
        except (StoreError, DuplicateTask):
            self._world.sometimes("a commit failed")
        finally:
            self._base.conn.set_commit_hook(None)
        self._ledger.check(self._process, "cut", parameters, None)
        raise StoreUnreachable("cut off")

    async def call_on(self, conn: Any, verb: str, /, **parameters: Any) -> Sequence[Row]:
        raise NotImplementedError

    def call_on_sync(self, conn: Any, verb: str, /, **parameters: Any) -> Sequence[Row]:
        raise NotImplementedError

    async def get_ready(self) -> None:
        raise NotImplementedError

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def query(self, sql: str) -> tuple[list[str], list[Row]]:
        raise NotImplementedError

    async def migrate(self) -> int:
        return 0

    async def check(self) -> int:
        return 0

    async def close(self) -> None: ...

    def uuid(self, value: Any) -> UUID:
        return self._base.driver.uuid(value)

    def instant(self, value: Any) -> datetime | None:
        return self._base.driver.instant(value)


def _asked(parameters: dict[str, Any]) -> str:
    def brief(value: Any) -> str:
        match value:
            case UUID():
                return value.hex[:6]
            case bytes():
                return value.hex()[:6]
            case list() | tuple():
                return f"[{', '.join(map(brief, value))}]"
            case _:
                return repr(value)

    return " ".join(f"{name}={brief(v)}" for name, v in parameters.items() if v is not None)
