"""Keys of the API. Digests only: a secret never comes this far."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.records import KeyRecord
from holdfast.stores.base import Base
from holdfast.tasks.names import check_delay, check_key, check_labels, check_name
from holdfast.tasks.task import plain

__all__ = ["Keys"]


class Keys(Base):
    """Keeps `holdfast.archive.Keys`."""

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
        if not isinstance(digest, bytes) or len(digest) < 16:
            raise InvalidInput("the digest of a key must be 16 bytes or more")
        added = await self._call(
            "add_key",
            id=check_key("id of a key", id),
            name=plain(name, 200),
            tenant=None if tenant is None else check_name("tenant", tenant),
            scopes=list(check_labels("scope", scopes)),
            digest=digest,
            created_by=plain(created_by, 200),
            expires=None if expires is None else check_delay("expiry", expires).total_seconds(),
        )
        if not added:
            raise InvalidInput(f"there is another key with the id {id!r}; make a new one")

    async def key(self, id: str) -> KeyRecord | None:
        for row in await self._call("keys", id=check_key("id of a key", id)):
            return self._key(row)
        return None

    async def keys(self) -> list[KeyRecord]:
        return [self._key(row) for row in await self._call("keys", id=None)]

    async def revoke_key(self, id: str) -> bool:
        return bool(await self._call("revoke_key", id=check_key("id of a key", id)))

    async def touch_keys(self, ids: Sequence[str]) -> int:
        return len(await self._call("touch_keys", ids=sorted(set(ids)))) if ids else 0

    def _key(self, row: Sequence[Any]) -> KeyRecord:
        return KeyRecord(
            id=row[0],
            name=row[1],
            tenant=row[2],
            scopes=tuple(row[3]),
            digest=row[4],
            created_at=self._at(row[5]),
            created_by=row[6],
            expires_at=self._driver.instant(row[7]),
            last_used_at=self._driver.instant(row[8]),
            revoked_at=self._driver.instant(row[9]),
            expired=bool(row[10]),
        )
