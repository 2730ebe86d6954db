"""Two connections on one stage, moved step by step, in every order that is asked for.

In the manner of PostgreSQL's isolationtester. An actor plays one verb of the real store on a
connection of its own; each of the verb's transactions is two steps, the statement and the commit
(three with `begins_apart`). A statement that waits for the other's lock is out of turn until the
other lets go.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from holdfast.stores.driver import Row
from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore

PATIENCE = 60.0
ONE_STEP = {"intern_lanes", "lapsed", "refuse", "settled"}
_BLOCKED = "select cardinality(pg_blocking_pids($1)) > 0"

Move = Callable[[SqlStore], Awaitable[Any]]


class RolledBack(Exception):
    """The actor's connection was cut before this commit."""


class Actor:
    """Plays one verb. Is a driver, so that the store's own Python side is on stage too."""

    one_writer = False

    def __init__(self, driver: PostgresDriver, conn: asyncpg.Connection) -> None:
        self._driver, self.conn = driver, conn
        self.pid = conn.get_server_pid()
        self._parked = asyncio.Event()
        self._go = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._rolls_back_at: int | None = None
        self.commits = 0
        self.blocked = False
        self.begins_apart = False

    # ── as a driver ──────────────────────────────────────────────────────────────────────────

    def as_tenant(self, tenant: str) -> "Actor":
        return self

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        if verb in ONE_STEP:
            await self._turn()
        if verb in ONE_STEP or verb == "lanes":
            async with self.conn.transaction():
                return await self._driver.call_on(self.conn, verb, **parameters)
        await self._turn()
        await self.conn.execute("begin")
        if self.begins_apart:
            await self._turn()
        try:
            rows = await self._driver.call_on(self.conn, verb, **parameters)
        except Exception:  # the store may know what to do, and ask for more
            await self.conn.execute("rollback")
            raise
        await self._turn()
        if self.commits == self._rolls_back_at:
            await self.conn.execute("rollback")
            raise RolledBack
        await self.conn.execute("commit")
        self.commits += 1
        return rows

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
        raise NotImplementedError

    async def check(self) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def uuid(self, value: Any) -> UUID:
        return self._driver.uuid(value)

    def instant(self, value: Any) -> datetime | None:
        return self._driver.instant(value)

    # ── as an actor ──────────────────────────────────────────────────────────────────────────

    def enter(self, play: Awaitable[Any], rolls_back_at: int | None) -> None:
        self.commits, self._rolls_back_at, self.blocked = 0, rolls_back_at, False
        self._parked.clear()
        self._go.clear()
        self._task = asyncio.ensure_future(play)

    @property
    def finished(self) -> bool:
        return self._task is not None and self._task.done()

    @property
    def ready(self) -> bool:
        return not self.finished and not self.blocked

    def step(self) -> None:
        self._parked.clear()
        self._go.set()

    async def rest(self, watch: asyncpg.Connection) -> None:
        """Until it waits for its next turn, has finished, or waits for a lock."""
        assert self._task is not None
        self.blocked = False
        for _ in range(int(PATIENCE / 0.002)):
            if self._parked.is_set() or self._task.done():
                return
            parking = asyncio.ensure_future(self._parked.wait())
            await asyncio.wait({parking, self._task}, timeout=0.002, return_when="FIRST_COMPLETED")
            parking.cancel()
            if self._parked.is_set() or self._task.done():
                return
            if await watch.fetchval(_BLOCKED, self.pid):
                self.blocked = True
                return
        raise TimeoutError("an actor neither moved nor waited for a lock")

    async def answer(self) -> Any:
        assert self._task is not None
        try:
            return await self._task
        except RolledBack as rolled_back:
            return rolled_back

    async def leave(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        if self.conn.is_in_transaction():
            await self.conn.execute("rollback")

    async def _turn(self) -> None:
        self._parked.set()
        await self._go.wait()
        self._go.clear()


class Stage:
    """Two actors, and a third connection that watches them."""

    def __init__(self, driver: PostgresDriver, conns: list[asyncpg.Connection]) -> None:
        self.watch = conns[2]
        self.actors = [Actor(driver, conn) for conn in conns[:2]]
        self.begins_apart = False

    async def perform(
        self, moves: Sequence[Move], order: str = "", rolls_back: tuple[int, int] | None = None
    ) -> tuple[str, list[str], list[Any]]:
        """Let the actors take turns by `order`, such as "abba"; beyond it, whoever moved last goes
        on. `rolls_back`: (actor, which of its commits). Answers the order as it was, the other
        orders that were possible beyond `order`, and what the actors heard."""
        taken, others = "", []
        try:
            for at, (actor, move) in enumerate(zip(self.actors, moves, strict=True)):
                cut = rolls_back[1] if rolls_back and rolls_back[0] == at else None
                actor.begins_apart = self.begins_apart
                actor.enter(_played(actor, move), cut)
                await actor.rest(self.watch)
            while not all(actor.finished for actor in self.actors):
                able = [name for name, actor in zip("ab", self.actors, strict=True) if actor.ready]
                if able:
                    wish = (order[len(taken) :] or taken[-1:] or "a")[0]
                    name = wish if wish in able else able[0]
                    if len(taken) >= len(order):
                        others += [taken + other for other in able if other != name]
                    taken += name
                    self.actors["ab".index(name)].step()
                for actor in sorted(self.actors, key=lambda actor: actor.blocked):
                    await actor.rest(self.watch)
            return taken, others, [await actor.answer() for actor in self.actors]
        except BaseException as error:
            error.add_note(f"order {taken!r}, rolled back: {rolls_back}")
            raise
        finally:
            for actor in self.actors:
                await actor.leave()


async def _played(actor: Actor, move: Move) -> Any:
    return await move(SqlStore(actor, share_commits=False))


@asynccontextmanager
async def stage(url: str, driver: PostgresDriver) -> AsyncIterator[Stage]:
    conns = [await asyncpg.connect(url) for _ in range(3)]
    try:
        for conn in conns:
            # A deadlock is a failure here: let it show at once.
            await conn.execute("set deadlock_timeout = '20ms'; set synchronous_commit = off")
        yield Stage(driver, conns)
    finally:
        for conn in conns:
            conn.terminate()
