"""The audit log: it only grows."""

from typing import Any

import msgspec

from holdfast.errors import InvalidInput
from holdfast.records import AuditRecord
from holdfast.stores.base import Base, check_limit
from holdfast.tasks.task import plain

__all__ = ["Audits", "json_text"]

_MOST_BYTES = 64 * 1024


class Audits(Base):
    """Keeps `holdfast.archive.Audits`."""

    async def note(
        self,
        actor: str,
        verb: str,
        subject: str = "",
        *,
        tenant: str | None = None,
        detail: dict[str, Any] | None = None,
    ) -> int:
        seq: int = await self._value(
            "note",
            actor=plain(actor, 200),
            tenant=None if tenant is None else plain(tenant, 200),
            verb=plain(verb, 200),
            subject=plain(subject, 1000),
            detail=json_text("the detail of an audit record", detail or {}),
        )
        return seq

    async def audits(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        tenant: str | None = None,
        limit: int = 100,
    ) -> list[AuditRecord]:
        check_limit(limit)
        if after is not None and before is not None:
            raise InvalidInput("ask for what comes after a number, or before one, not both")
        return [
            AuditRecord(
                seq=row[0],
                at=self._at(row[1]),
                actor=row[2],
                tenant=row[3],
                verb=row[4],
                subject=row[5],
                detail=msgspec.json.decode(row[6]),
            )
            for row in await self._call(
                "audits", after=after, before=before, tenant=tenant, limit=limit
            )
        ]


def json_text(what: str, value: dict[str, Any]) -> str:
    """A small object as JSON that every database can hold."""
    try:
        data = msgspec.json.encode(value)
        text = data.decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} must be plain JSON: {error}") from None
    if len(data) > _MOST_BYTES:
        raise InvalidInput(f"{what} has {len(data):,} bytes; at most {_MOST_BYTES:,} are kept")
    return text
