"""Events: as a stream (server-sent events) or as a page."""

from contextlib import ExitStack
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.shapes import EventPage
from holdfast.http.fields import Limit
from holdfast.http.problems import wrong_parameter
from holdfast.http.rendering import json
from holdfast.http.routing import Ask, Routes
from holdfast.http.streaming import Stream, lines_of

__all__ = ["routes"]

routes = Routes("events")
After = Annotated[int, Meta(ge=0, le=2**63 - 1, description="Go on after this number.")]


class Following(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: After | None = None
    types: (
        Annotated[
            str,
            Meta(min_length=1, max_length=500, description="Only these: `task.done,task.failed`."),
        ]
        | None
    ) = None
    format: Literal["sse", "json"] = "sse"
    limit: Limit = 500


@routes.get(
    "/v1/events",
    scope="tasks:read",
    query=Following,
    answers={200: EventPage},
    headers={"Last-Event-ID": "Go on after this number, as browsers ask for it."},
    media="text/event-stream",
)
async def follow_events(ask: Ask) -> Response:
    """What happens, in order, none left out: a stream from now on, or from after a number. With
    `format=json` one page, from the beginning or from after a number."""
    wanted: Following = ask.query
    types = frozenset((wanted.types or "").split(",")) - {""}
    after = _after(ask)
    if wanted.format == "json":
        page = await ask.desk.events(after or 0, wanted.limit)
        data = [event for event in page.data if not types or event.type in types]
        return json(msgspec.structs.replace(page, data=data))
    stack = ExitStack()
    stack.enter_context(ask.house.hubs.listening(ask.caller))
    hub = ask.house.hubs.hub(ask.caller)
    try:
        place = await hub.now() if after is None else after
    except BaseException:
        stack.close()
        raise
    return Stream(lines_of(ask, hub.follow(place), types), stack)


def _after(ask: Ask) -> int | None:
    seen = ask.header("last-event-id")
    if ask.query.after is not None or not seen:
        return ask.query.after  # type: ignore[no-any-return]
    if not seen.isdecimal() or len(seen) > 18:
        raise wrong_parameter("Last-Event-ID", "it is the number of an event", status=400)
    return int(seen)
