"""Dead letters: what failed for good, for people to look at, replay or discard."""

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.shapes import Changed, DeadLetterGroupView, TaskPage
from holdfast.http.fields import MAX_BATCH, Cursor, ErrorText, Instant, Label, Limit
from holdfast.http.rendering import Listed, json
from holdfast.http.routes.tasks import TaskFilter, listed
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("dead letters")


class Letters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Label | None = None
    type: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    user_id: Label | None = None
    error: ErrorText | None = None
    error_type: Label | None = None
    ended_after: Instant | None = None
    ended_before: Instant | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class Groups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 50


class Chosen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters by their ids."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=MAX_BATCH)]


@routes.get("/v1/dead-letters", scope="tasks:read", query=Letters, answers={200: TaskPage})
async def list_dead_letters(ask: Ask) -> Response:
    """Tasks that failed for good, newest first."""
    return await listed(ask, TaskFilter(status="failed", **msgspec.structs.asdict(ask.query)))


@routes.get(
    "/v1/dead-letters/groups",
    scope="tasks:read",
    query=Groups,
    answers={200: Listed[DeadLetterGroupView]},
)
async def list_dead_letter_groups(ask: Ask) -> Response:
    """Those that look alike, together: by type and error."""
    return json(Listed(data=await ask.desk.dead_letter_groups(ask.query.limit)))


@routes.post(
    "/v1/dead-letters:replay",
    scope="tasks:control",
    body=Chosen,
    answers={200: Changed},
    errors=(404,),
)
async def replay_dead_letters(ask: Ask) -> Response:
    """A new life for each, with all its tries."""
    return json(await ask.desk.replay(ask.body.ids))


@routes.post(
    "/v1/dead-letters:discard",
    scope="tasks:control",
    body=Chosen,
    answers={200: Changed},
    errors=(404,),
)
async def discard_dead_letters(ask: Ask) -> Response:
    """Forget them for good."""
    return json(await ask.desk.discard(ask.body.ids))
