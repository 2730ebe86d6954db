"""Requests that carry a key of their own: each is done once, and answered the same again."""

from datetime import timedelta
from uuid import UUID

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
        ((state, status, body),) = await self._call(
            "begin_request",
            scope=check_key("scope of a request", scope),
            key=check_key("idempotency key", key),
            digest=digest,
            token=token,
            patience=seconds_of("patience", patience),
            kept=KEPT.total_seconds(),
        )
        return RequestAnswer(state=state, status=status, body=body)

    async def end_request(
        self, scope: str, key: str, *, token: UUID, status: int, body: bytes
    ) -> bool:
        return bool(
            await self._call(
                "end_request", scope=scope, key=key, token=token, status=status, body=body
            )
        )

    async def drop_request(self, scope: str, key: str, *, token: UUID) -> bool:
        return bool(await self._call("drop_request", scope=scope, key=key, token=token))
