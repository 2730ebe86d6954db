"""Keys of the API, and the audit: who may, and who did."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.papers import AuditPage, AuditQuery, KeyView, KeyWish, NewKey
from holdfast.http.fields import Instant, Label, Limit
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("keys")


class Records(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    actor: Label | None = None
    verb: (
        Annotated[
            str, Meta(min_length=1, max_length=200, description="`task.cancel`, or `task.*`.")
        ]
        | None
    ) = None
    subject: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    tenant_id: Label | None = None
    since: Instant | None = None
    until: Instant | None = None
    before: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="`next_before` of the page before.")]
        | None
    ) = None
    limit: Limit = 100


@routes.post("/v1/keys", scope="admin", once=False, body=KeyWish, answers={201: NewKey})
async def create_key(ask: Ask) -> Response:
    """Make a key. It is shown this once, and stored nowhere: so not for an `Idempotency-Key`."""
    return json(await ask.desk.create_key(ask.body), 201)


@routes.get("/v1/keys", scope="admin", answers={200: Listed[KeyView]})
async def list_keys(ask: Ask) -> Response:
    """All keys, without their secrets."""
    return json(Listed(data=await ask.desk.keys()))


@routes.get("/v1/keys/{key_id}", scope="admin", answers={200: KeyView})
async def show_key(ask: Ask) -> Response:
    """One of them."""
    return json(await ask.desk.key(ask.path["key_id"]))


@routes.post("/v1/keys/{key_id}:revoke", scope="admin", answers={200: KeyView})
async def revoke_key(ask: Ask) -> Response:
    """It is refused from now on, everywhere within a second."""
    return json(await ask.desk.revoke_key(ask.path["key_id"]))


@routes.get("/v1/audit", scope="admin", query=Records, answers={200: AuditPage})
async def list_audit(ask: Ask) -> Response:
    """Who changed what, newest first. A page may be short where older ones follow: go by
    `next_before`."""
    return json(await ask.desk.audits(AuditQuery(**msgspec.structs.asdict(ask.query))))
