"""CloudEvents 1.0 (structured, batched, or binary over HTTP) as tasks: each event once."""

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.shapes import Accepted, NewTask
from holdfast.http.bounds import fault_of
from holdfast.http.fields import MAX_BATCH, Label
from holdfast.http.problems import Problem
from holdfast.http.rendering import Listed, json
from holdfast.http.routing import Ask, Routes

__all__ = ["routes"]

routes = Routes("ingest")
ONE, MANY = "application/cloudevents+json", "application/cloudevents-batch+json"
Text = Annotated[str, Meta(min_length=1, max_length=1000)]


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes that every event has; others go along."""

    specversion: Literal["1.0"]
    id: Text
    source: Text
    type: Text
    time: datetime | None = None

    @property
    def key(self) -> str:
        """Who sends the same event twice means it once."""
        return "ce:" + sha256(f"{self.source}\0{self.id}".encode()).hexdigest()


class Into(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: (
        Annotated[
            str,
            Meta(min_length=1, max_length=200, description="The function; else the event's type."),
        ]
        | None
    ) = None
    queue: Label | None = None
    allow_unknown: bool = False


@routes.post(
    "/v1/ingest/cloudevents",
    scope="tasks:enqueue",
    once=False,
    query=Into,
    body=Any,
    takes=(ONE, MANY, "application/json"),
    answers={201: Listed[Accepted], 200: Listed[Accepted]},
    errors=(409,),
    headers={"ce-id": "Of an event in binary mode, as all its attributes: `ce-source`, `ce-type`."},
)
async def ingest_cloudevents(ask: Ask) -> Response:
    """A task for each event, which is called with `event=`: all of them or none. 200 where all
    were known already."""
    made = await ask.desk.submit([_wish(ask.query, event) for event in _events(ask)])
    return json(Listed(data=made), 201 if any(one.created for one in made) else 200)


def _events(ask: Ask) -> list[Any]:
    kind = (ask.header("content-type") or "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return [_binary(ask.request.headers, ask.body)]
    events = ask.body if kind == MANY else [ask.body]
    if not isinstance(events, list) or not 1 <= len(events) <= MAX_BATCH:
        raise Problem(422, "invalid_body", f"a batch is a list of 1 to {MAX_BATCH:,} events")
    return events


def _binary(headers: Mapping[str, str], data: Any) -> dict[str, Any]:
    given = {name[3:]: value for name, value in headers.items() if name.startswith("ce-")}
    return {**given, "datacontenttype": "application/json", "data": data}


def _wish(into: Into, event: Any) -> NewTask:
    try:
        known = msgspec.convert(event, CloudEvent)
    except msgspec.ValidationError as error:
        fault = fault_of(error)
        raise Problem(422, "invalid_body", f"no CloudEvent: {error}", errors=[fault]) from None
    return NewTask(
        type=into.type or known.type,
        kwargs={"event": event},
        queue=into.queue,
        idempotency_key=known.key,
        allow_unknown=into.allow_unknown,
    )
