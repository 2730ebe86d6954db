"""Idempotency keys: one task for one (tenant, key)."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.stores.sqlite.session import Session

__all__ = ["Taken", "key_holders", "take_keys"]


class Taken(NamedTuple):
    """Who came too late, who holds their keys, whether for other work; and who needs no row."""

    ids: list[UUID]
    by: list[UUID]
    conflicts: list[bool]
    skipped: set[UUID]


class _Asked(NamedTuple):
    tenant: str
    key: str
    id: UUID
    fingerprint: bytes
    lifetime: float | None


def take_keys(
    s: Session,
    ids: Sequence[UUID],
    keys: Sequence[str | None],
    tenants: Sequence[str],
    fingerprints: Sequence[bytes],
    lifetimes: Sequence[float | None] | None,
) -> Taken:
    """Takes all that are free, or none where one belongs to other work."""
    asked = [
        _Asked(tenant, key, id, fingerprint, lifetime)
        for id, key, tenant, fingerprint, lifetime in zip(
            ids, keys, tenants, fingerprints, lifetimes or [None] * len(ids), strict=True
        )
        if key is not None
    ]
    holders, takers = _settle_on(s, asked, set(ids))
    late = [
        (a.id, holder, theirs != a.fingerprint)
        for a in asked
        for holder, theirs in (holders[a.tenant, a.key],)
        if holder != a.id
    ]
    if not any(conflict for _, _, conflict in late):
        _take(s, takers)
    return Taken(
        [id for id, _, _ in late],
        [holder for _, holder, _ in late],
        [conflict for _, _, conflict in late],
        {a.id for a in asked} - {a.id for a in takers},
    )


def key_holders(s: Session, *, tenants: list[str], keys: list[str]) -> list[tuple[Any, ...]]:
    return [row[:4] for row in s.each("key.holder", tenant=tenants, key=keys)]


def _settle_on(
    s: Session, asked: Sequence[_Asked], ids: set[UUID]
) -> tuple[dict[tuple[str, str], tuple[UUID, bytes]], list[_Asked]]:
    """Who holds each key in the end, and who has to take it for that: the first who asks, where
    nobody has it, or had it only for a time that is over."""
    rows = s.each("key.holder", tenant=[a.tenant for a in asked], key=[a.key for a in asked])
    holders = {
        (tenant, key): (UUID(bytes=id), fingerprint)
        for tenant, key, id, fingerprint, released in rows
        if not released or UUID(bytes=id) in ids
    }
    takers = []
    for a in asked:
        if (a.tenant, a.key) not in holders:
            holders[a.tenant, a.key] = (a.id, a.fingerprint)
            takers.append(a)
    return holders, takers


def _take(s: Session, takers: Sequence[_Asked]) -> None:
    taken = s.each(
        "key.take",
        tenant=[a.tenant for a in takers],
        key=[a.key for a in takers],
        id=[a.id.bytes for a in takers],
        fingerprint=[a.fingerprint for a in takers],
        lifetime=[a.lifetime for a in takers],
    )
    assert len(taken) == len(takers)  # nobody else writes
