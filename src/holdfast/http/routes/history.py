"""What happened to one task; and where the events of all of them stand."""

import msgspec
from starlette.responses import Response

from holdfast.desk.shapes import EventPage, EventPlace
from holdfast.http.fields import After, Limit
from holdfast.http.rendering import json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("events")


class Since(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: After = 0
    limit: Limit = 500


@routes.get("/v1/tasks/{task_id}/events", scope="tasks:read", query=Since, answers={200: EventPage})
async def list_task_events(ask: Ask) -> Response:
    """How its attempts ended, and late writes that were refused, in order. Go on after `last`."""
    wanted: Since = ask.query
    return json(await ask.desk.task_events(ask.path["task_id"], wanted.after, wanted.limit))


@routes.get("/v1/events/newest", scope="tasks:read", answers={200: EventPlace})
async def show_newest_event(ask: Ask) -> Response:
    """The number of the last event so far: `GET /v1/events?after=` goes on from there."""
    return json(EventPlace(last=await ask.desk.newest_event()))
