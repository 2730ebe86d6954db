"""Recoveries: what dead workers held, taken back."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.shapes import RecoveryRun, RecoveryView
from holdfast.http.fields import Limit
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("recoveries")


class Recent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    before: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="The last `seq` you saw.")] | None
    ) = None
    limit: Limit = 50


class DryRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False


@routes.get(
    "/v1/recoveries",
    scope="fleet:read",
    whole=True,
    query=Recent,
    answers={200: Listed[RecoveryView]},
)
async def list_recoveries(ask: Ask) -> Response:
    """Attempts that were lost and taken back, newest first."""
    return json(
        Listed(data=await ask.desk.recoveries(before=ask.query.before, limit=ask.query.limit))
    )


@routes.post(
    "/v1/recoveries",
    "/distributed/recover-orphans",
    scope="fleet:control",
    whole=True,
    query=DryRun,
    answers={200: RecoveryRun},
)
async def recover(ask: Ask) -> Response:
    """Take back what dead workers held, now. Workers do so by themselves all the time; to ask
    twice at once is harmless."""
    return json(await ask.desk.recover(dry_run=ask.query.dry_run))
