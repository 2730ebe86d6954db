"""Requests that carry a key of their own: each is done once, and answered the same again."""

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

import msgspec

from holdfast.records import RequestAnswer
from holdfast.stores.base import Base
from holdfast.stores.working import seconds_of
from holdfast.tasks.names import check_key

__all__ = ["KEPT", "Requests"]

KEPT = timedelta(days=1)


class Requests(Base):
    """Keeps `holdfast.archive.Requests`."""

    async def begin_request(
        self,
        scope: str,
        key: str,
        digest: bytes,
        *,
        token: UUID,
        patience: timedelta = timedelta(minutes=1),
    ) -> RequestAnswer:
        ((state, status, headers, body),) = await self._call(
            "begin_request",
            scope=check_key("scope of a request", scope),
            key=check_key("idempotency key", key),
            digest=digest,
            token=token,
            patience=seconds_of("patience", patience),
            kept=KEPT.total_seconds(),
        )
        known = msgspec.json.decode(headers, type=dict[str, str]) if headers else {}
        return RequestAnswer(state=state, status=status, headers=known, body=body)

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
        return bool(
            await self._call(
                "end_request",
                scope=scope,
                key=key,
                token=token,
                status=status,
                headers=msgspec.json.encode(headers or {}),
                body=body,
            )
        )

    async def drop_request(self, scope: str, key: str, *, token: UUID) -> bool:
        return bool(await self._call("drop_request", scope=scope, key=key, token=token))
