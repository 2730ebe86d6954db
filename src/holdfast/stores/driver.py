"""What a database must offer: verbs by name. The seam between the one store and its databases."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

__all__ = ["Driver", "DuplicateTask", "MisplacedTask", "Row"]

Row = Any  # a tuple, or a driver's own record: read by position


class DuplicateTask(Exception):
    """A task id that is already there: this very call was written before, or an id was reused."""


class MisplacedTask(Exception):
    """A task that stands in two places: a lane must be repaired before it gives anything."""


class Driver(Protocol):
    """One database. Each verb is one transaction and answers rows; same verbs, same parameters.

    `one_writer`: while a caller's transaction is open, nobody else can write.
    """

    one_writer: bool

    def as_tenant(self, tenant: str) -> "Driver":
        """The same driver, which says in each transaction whose it is; `*`: all tenants'."""
        ...

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        """Run a verb on a connection of our own, durable when it returns."""
        ...

    async def call_on(
        self, conn: Any, verb: str, /, *, tell: Iterable[str] = (), **parameters: Any
    ) -> Sequence[Row]:
        """Run a verb on the caller's connection, inside its transaction. Where the database can
        send hints (`holdfast.notifier`), `tell` is sent when that commits; each row of the answer
        may be longer by a column then."""
        ...

    def call_on_sync(
        self, conn: Any, verb: str, /, *, tell: Iterable[str] = (), **parameters: Any
    ) -> Sequence[Row]:
        """The same in the caller's own thread, once `get_ready` was called."""
        ...

    async def get_ready(self) -> None:
        """Learn what `call_on_sync` must know, since it cannot ask."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection of ours inside a transaction: commits at the end, or rolls back."""
        ...

    async def query(self, sql: str) -> tuple[list[str], list[Row]]:
        """One statement of somebody's own that only reads: its columns and rows. Whatever would
        write is refused with `ReadOnly`; what is no SQL, or answers too many rows, with
        `InvalidInput`; what takes too long is stopped, with `StoreError`."""
        ...

    async def migrate(self) -> int:
        """Bring the schema up to this release."""
        ...

    async def check(self) -> int:
        """The version of a schema that fits this release; otherwise `SchemaMismatch`."""
        ...

    async def close(self) -> None: ...

    def uuid(self, value: Any) -> UUID: ...

    def instant(self, value: Any) -> datetime | None: ...
