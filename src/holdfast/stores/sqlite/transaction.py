"""A caller's own transaction on the store's writer: business rows and tasks, together or not."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.stores.driver import Row
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.threads import Hold
from holdfast.stores.sqlite.verbs import Verb

__all__ = ["SqliteConnection"]

Asking = Callable[[Callable[[Database], Any], Hold], Awaitable[Any]]


class SqliteConnection:
    """What `SqliteDriver.transaction()` yields: pass it as `conn=` to enqueue with your rows."""

    def __init__(self, ask: Asking, timeout: float, place: str) -> None:
        self._ask, self._place = ask, place
        self._hold = Hold(timeout)

    def belongs_to(self, place: str) -> bool:
        return self._place == place

    async def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """A statement of your own; its rows. Errors are those of apsw."""
        self._hold.check()
        rows: list[tuple[Any, ...]] = await self._ask(
            lambda database: database.execute(sql, parameters), self._hold
        )
        return rows

    async def call(self, verb: Verb, parameters: dict[str, Any]) -> Sequence[Row]:
        """A verb of the store, inside this transaction."""
        self._hold.check()
        rows: Sequence[Row] = await self._ask(
            lambda database: database.run(lambda s: verb.run(s, **parameters)), self._hold
        )
        return rows

    async def begin(self) -> None:
        def begin(database: Database) -> None:
            try:
                database.begin()
            except BaseException:
                self._hold.ended = "could not begin"
                raise

        await self._ask(begin, self._hold)

    async def commit(self) -> None:
        self._hold.check()
        await self._end("was committed", Database.commit)

    async def rollback(self) -> None:
        if self._hold.ended is None:
            await self._end("was rolled back", Database.rollback)

    async def _end(self, how: str, ending: Callable[[Database], None]) -> None:
        def end(database: Database) -> None:
            self._hold.ended = how
            ending(database)

        await self._ask(end, self._hold)
