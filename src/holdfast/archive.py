"""What a store promises to keep for the faces: keys, the audit, requests, logs, bulk operations,
numbers. Kept by `holdfast.stores`, as the rest of `holdfast.store`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol
from uuid import UUID

from holdfast.records import (
    AuditRecord,
    KeyRecord,
    LogLine,
    LogRecord,
    Operation,
    RequestAnswer,
    Rollup,
)
from holdfast.tasks.task import Lease

__all__ = ["Audits", "Keys", "Logs", "Operations", "Requests", "Rollups"]


class Keys(Protocol):
    """Keys of the API. The store sees digests, never a secret."""

    async def add_key(
        self,
        id: str,
        *,
        name: str,
        scopes: Sequence[str],
        digest: bytes,
        created_by: str,
        tenant: str | None = None,
        expires: timedelta | None = None,
    ) -> None:
        """`tenant`: None for all tenants. Raises `InvalidInput` where the id is another key's."""
        ...

    async def key(self, id: str) -> KeyRecord | None:
        """Also one that has expired or was revoked: the record says so."""
        ...

    async def keys(self) -> list[KeyRecord]: ...

    async def revoke_key(self, id: str) -> bool:
        """False: there is no such key, or it was revoked before."""
        ...

    async def touch_keys(self, ids: Sequence[str]) -> int:
        """They were used just now; written at most once a minute for each key."""
        ...


class Audits(Protocol):
    """Who did what. The log only grows: the database itself refuses changes."""

    async def note(
        self,
        actor: str,
        verb: str,
        subject: str = "",
        *,
        tenant: str | None = None,
        detail: dict[str, Any] | None = None,
    ) -> int:
        """Answers its number. Asked again after a lost answer, it may be noted twice."""
        ...

    async def audits(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        tenant: str | None = None,
        limit: int = 100,
    ) -> list[AuditRecord]:
        """The newest first, down from `before`; or on from `after`, the oldest first."""
        ...


class Requests(Protocol):
    """Requests with an idempotency key: done once, and answered the same again for a day."""

    async def begin_request(
        self,
        scope: str,
        key: str,
        digest: bytes,
        *,
        token: UUID,
        patience: timedelta = timedelta(minutes=1),
    ) -> RequestAnswer:
        """`scope`: whose keys they are: the tenant's name, or that, a space, and more.
        `token` is made by the caller for each request and says who does it. One that was begun
        and not ended within `patience` is given to whoever asks next."""
        ...

    async def end_request(
        self,
        scope: str,
        key: str,
        *,
        token: UUID,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        """False: it took too long, and another one does it now."""
        ...

    async def drop_request(self, scope: str, key: str, *, token: UUID) -> bool:
        """It came to nothing: the next one with this key is new."""
        ...


class Logs(Protocol):
    """What attempts say."""

    async def log(self, lease: Lease, lines: Sequence[LogLine]) -> None:
        """Keep lines of this attempt, at most 1,000 and 256 KiB in all; what is beyond is counted
        in a last line. Raises `LeaseLost`."""
        ...

    async def logs(
        self, task: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 500
    ) -> list[LogRecord]:
        """In order; `after` is the fence and position of the last line that was seen."""
        ...


class Operations(Protocol):
    """Bulk work that is done bit by bit, by one process at a time."""

    async def start_operation(
        self,
        id: UUID,
        action: str,
        filter: dict[str, Any],
        *,
        actor: str,
        rate: float | None = None,
        matched: int | None = None,
        capped: bool = False,
        tenant: str | None = None,
        reason: str | None = None,
    ) -> None:
        """`id` is a UUIDv7 of the caller's: started twice is started once."""
        ...

    async def operation(self, id: UUID) -> Operation | None: ...

    async def operations(
        self, *, before: UUID | None = None, tenant: str | None = None, limit: int = 50
    ) -> list[Operation]:
        """The newest first."""
        ...

    async def cancel_operation(self, id: UUID) -> bool:
        """False: it has ended, or there is none. Whoever drives it hears so at its next step."""
        ...

    async def take_operations(
        self, grant: UUID, *, lease: timedelta = timedelta(seconds=30), limit: int = 1
    ) -> list[Operation]:
        """Open ones that nobody drives, oldest first; they are this grant's until the lease ends,
        which each step extends."""
        ...

    async def advance_operation(
        self,
        id: UUID,
        grant: UUID,
        *,
        position: str | None,
        done: int,
        failed: int,
        matched: int | None = None,
        lease: timedelta = timedelta(seconds=30),
    ) -> bool:
        """How far it is, in all. False: it was cancelled, or another one drives it: stop."""
        ...

    async def end_operation(
        self,
        id: UUID,
        grant: UUID,
        state: Literal["done", "failed"] = "done",
        *,
        error: str | None = None,
    ) -> bool: ...


class Rollups(Protocol):
    """Numbers per minute."""

    async def roll_up(self, batch: int = 5000) -> int:
        """Count what happened since the last time, each event once, whoever else does so too;
        answers how many events were taken in. What is forgotten before that is counted then."""
        ...

    async def rollups(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
        tenant: str | None = None,
    ) -> list[Rollup]:
        """A time series; steps in which nothing ended are left out. Steps are whole minutes and
        begin at multiples of the step since 1970."""
        ...
