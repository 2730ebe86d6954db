"""Numbers over time."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.papers import SeriesView
from holdfast.http.fields import Label
from holdfast.http.problems import wrong_parameter
from holdfast.http.rendering import json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("series")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last hour, where nothing is said."""

    since: Annotated[datetime, Meta(tz=True, description="From this time on.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Up to this time.")] | None = None
    step: Annotated[int, Meta(ge=60, le=86_400, description="Seconds; whole minutes.")] = 60
    queue: Label | None = None
    type: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


@routes.get("/v1/stats/timeseries", scope="fleet:read", query=Span, answers={200: SeriesView})
async def show_series(ask: Ask) -> Response:
    """What ended in each step, with histograms of waiting and running. Without `since` and `until`:
    the last hour."""
    wanted: Span = ask.query
    if wanted.step % 60:
        raise wrong_parameter("step", "it is whole minutes: 60, 300, 3600")
    until = wanted.until or _EPOCH + timedelta(microseconds=ask.house.app.home.clock.wall())
    since = wanted.since or _before(until)
    if since > until:
        raise wrong_parameter("since", "it lies after `until`")
    found = await ask.desk.series(
        since,
        until,
        step=timedelta(seconds=wanted.step),
        queue=wanted.queue,
        type=wanted.type,
    )
    return json(found)


def _before(until: datetime) -> datetime:
    try:
        return until - timedelta(hours=1)
    except OverflowError:
        raise wrong_parameter("until", "it lies before all time") from None
