"""Queues: numbers, what holds them back, pause and resume."""

import msgspec
from starlette.responses import Response

from holdfast.desk.shapes import QueueView, WhyView
from holdfast.http.problems import Problem
from holdfast.http.rendering import Listed, fresh, json, matches, needed_match, tag_of
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("queues")
_IF_NONE = {"If-None-Match": "An ETag: 304 where nothing has changed."}
_IF_MATCH = {"If-Match": "An ETag: 412 where the queue's settings are others by now."}


class QueueChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`paused`: nothing more of it is claimed."""

    paused: bool


@routes.get("/v1/queues", scope="fleet:read", answers={200: Listed[QueueView]})
async def list_queues(ask: Ask) -> Response:
    """Every known queue."""
    return json(Listed(data=await ask.desk.queues()))


@routes.get(
    "/v1/queues/{queue}",
    scope="fleet:read",
    answers={200: QueueView, 304: None},
    headers=_IF_NONE,
)
async def show_queue(ask: Ask) -> Response:
    """One queue; zeroes where nobody has used it."""
    return _shown(ask, await ask.desk.queue(ask.path["queue"]))


@routes.get("/v1/queues/{queue}/why", scope="fleet:read", answers={200: Listed[WhyView]})
async def explain_queue(ask: Ask) -> Response:
    """What holds it back."""
    return json(Listed(data=await ask.desk.queue_why(ask.path["queue"])))


@routes.patch(
    "/v1/queues/{queue}",
    scope="fleet:control",
    whole=True,
    body=QueueChange,
    answers={200: QueueView},
    errors=(412, 428),
    headers={"If-Match": "The ETag that you saw, or `*`. Needed."},
)
async def change_queue(ask: Ask) -> Response:
    """Pause or resume it, if it is still as you saw it."""
    needed_match(ask)
    await _check_match(ask)
    change = ask.desk.pause if ask.body.paused else ask.desk.resume
    return _shown(ask, await change(ask.path["queue"]))


@routes.post(
    "/v1/queues/{queue}:pause",
    scope="fleet:control",
    whole=True,
    answers={200: QueueView},
    errors=(412,),
    headers=_IF_MATCH,
)
async def pause_queue(ask: Ask) -> Response:
    """Nothing more of it is claimed; what runs goes on."""
    await _check_match(ask)
    return _shown(ask, await ask.desk.pause(ask.path["queue"]))


@routes.post(
    "/v1/queues/{queue}:resume",
    scope="fleet:control",
    whole=True,
    answers={200: QueueView},
    errors=(412,),
    headers=_IF_MATCH,
)
async def resume_queue(ask: Ask) -> Response:
    """It is claimed from again."""
    await _check_match(ask)
    return _shown(ask, await ask.desk.resume(ask.path["queue"]))


def _revision(view: QueueView) -> str:
    return tag_of(msgspec.json.encode([view.queue, view.paused]))


def _shown(ask: Ask, view: QueueView) -> Response:
    return fresh(ask, view, _revision(view))


async def _check_match(ask: Ask) -> None:
    header = ask.header("if-match")
    if header is None:
        return
    if not matches(header, _revision(await ask.desk.queue(ask.path["queue"]))):
        raise Problem(412, "changed_meanwhile", "the queue has changed; look at it again")
