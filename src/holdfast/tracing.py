"""Spans of OpenTelemetry, in programs that use it: one when tasks are made, one for each attempt,
and a link from the one to the other. Where nobody has set OpenTelemetry up, nothing is done.

The context travels with the arguments, as a third field of theirs; what makes two tasks the same
work does not count it.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.tasks.task import Claimed, Draft
from holdfast.version import __version__

__all__ = ["attempting", "is_on", "sending"]


class _Carried(msgspec.Struct):
    trace: str | None = None


def is_on() -> bool:
    """Whether somebody has set OpenTelemetry up: that libraries load it is not enough. Asked for
    each attempt, so not by `get_tracer_provider`, which looks into the environment."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and getattr(trace, "_TRACER_PROVIDER", trace) is not None


def sending(drafts: Sequence[Draft]) -> contextlib.AbstractContextManager[Sequence[Draft]]:
    """While they are accepted. Yields them with the context of the span."""
    return _sending(drafts) if drafts and is_on() else contextlib.nullcontext(drafts)


@contextlib.contextmanager
def _sending(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    from opentelemetry.trace import SpanKind

    attributes: dict[str, Any] = {
        "messaging.system": "holdfast",
        "messaging.operation.type": "send",
        "messaging.destination.name": drafts[0].queue,
        "messaging.batch.message_count": len(drafts),
        "holdfast.task.type": drafts[0].type,
    }
    if len(drafts) == 1:
        attributes["messaging.message.id"] = str(drafts[0].id)
    name = f"enqueue {drafts[0].type}"
    with _tracer().start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes):
        carried = _written()
        yield [_with(draft, carried) for draft in drafts] if carried else drafts


@contextlib.contextmanager
def attempting(claimed: Claimed, worker_id: str, scrub: Callable[[str], str]) -> Iterator[None]:
    """While the function runs. An error is the span's, without its secrets; being stopped is
    none."""
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode

    origin = _read(claimed.payload)
    attributes: dict[str, Any] = {
        "messaging.system": "holdfast",
        "messaging.operation.type": "process",
        "messaging.destination.name": claimed.lane.queue,
        "messaging.message.id": str(claimed.lease.task),
        "holdfast.task.type": claimed.lane.type,
        "holdfast.task.attempt": claimed.tries,
        "holdfast.task.fence": claimed.lease.fence,
        "holdfast.tenant": claimed.lane.tenant,
        "holdfast.worker.id": worker_id,
    }
    with _tracer().start_as_current_span(
        f"process {claimed.lane.type}",
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=[Link(origin)] if origin else [],
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            said = {"exception.type": type(error).__qualname__}
            with contextlib.suppress(Exception):  # its own __str__ may raise anything
                said["exception.message"] = scrub(str(error))[:4000]
            span.add_event("exception", said)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _tracer() -> Any:
    from opentelemetry.trace import get_tracer

    return get_tracer("holdfast", __version__)


def _written() -> str | None:
    """The current span, as W3C writes it."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def _read(payload: bytes) -> Any:
    """The context of the span that made this task; None: there was none."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    try:
        carried = msgspec.json.decode(payload, type=_Carried).trace
    except msgspec.MsgspecError:
        return None
    if carried is None:
        return None
    context = TraceContextTextMapPropagator().extract({"traceparent": carried})
    found = get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _with(draft: Draft, trace: str) -> Draft:
    if not draft.payload.endswith(b"}") or len(draft.payload) < 3:
        return draft  # no arguments as ours: left alone
    payload = draft.payload[:-1] + b',"trace":"' + trace.encode() + b'"}'
    return msgspec.structs.replace(draft, payload=payload, work=draft.fingerprint)
