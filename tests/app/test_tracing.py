"""Spans of OpenTelemetry: in a program of its own, since they are the whole process's."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from holdfast import Holdfast, RetryPolicy

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")

async def main(url):
    async with Holdfast.bootstrap(url, serve=True, poll_interval=0.02) as app:
        @app.durable(name="child")
        async def child(i: int) -> int:
            with tracer.start_as_current_span("inside"):
                return i

        @app.durable(name="parent")
        async def parent(i: int) -> int:
            return await child(i)

        @app.durable(name="fails", retry_policy=RetryPolicy(max_attempts=2, initial_delay=0.0))
        def fails() -> None:
            raise ValueError("no luck")

        with tracer.start_as_current_span("request"):
            task = await app.dispatch(parent, 7)
            again = await app.dispatch(parent.options(idempotency_key="k"), 7)
        same = await app.dispatch(parent.options(idempotency_key="k"), 7)
        assert same.id == again.id, "another trace is no other work"
        assert await task.result(timeout=60) == 7
        await again.result(timeout=60)
        try:
            await (await app.dispatch(fails)).result(timeout=60)
        except Exception:
            pass
    print(json.dumps([
        {
            "name": s.name, "kind": s.kind.name, "id": s.context.span_id,
            "trace": s.context.trace_id,
            "parent": s.parent and s.parent.span_id, "links": [l.context.span_id for l in s.links],
            "status": s.status.status_code.name, "attributes": dict(s.attributes),
        }
        for s in exporter.get_finished_spans()
    ]))

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def spans(url: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def named(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [span for span in spans if span["name"] == name]


def test_attempts_are_linked_to_what_made_them(spans: list[dict[str, Any]]) -> None:
    (request,) = named(spans, "request")
    made = named(spans, "enqueue parent")
    assert [span["kind"] for span in made] == ["PRODUCER"] * 3
    assert [span["parent"] for span in made] == [request["id"], request["id"], None]
    ran = named(spans, "process parent")
    assert {span["kind"] for span in ran} == {"CONSUMER"}
    assert {link for span in ran for link in span["links"]} == {made[0]["id"], made[1]["id"]}
    assert all(span["trace"] != request["trace"] for span in ran), "linked, not nested"


def test_children_are_linked_to_their_parents(spans: list[dict[str, Any]]) -> None:
    parents = {span["id"] for span in named(spans, "process parent")}
    asked = named(spans, "enqueue child")
    assert {span["parent"] for span in asked} <= parents
    ran = named(spans, "process child")
    assert {link for span in ran for link in span["links"]} == {span["id"] for span in asked}
    inside = named(spans, "inside")
    assert {span["parent"] for span in inside} == {span["id"] for span in ran}


def test_every_attempt_has_its_own_span(spans: list[dict[str, Any]]) -> None:
    tries = named(spans, "process fails")
    assert [span["status"] for span in tries] == ["ERROR", "ERROR"]
    attempts = [span["attributes"]["holdfast.task.attempt"] for span in tries]
    assert attempts == [1, 2]
    assert tries[0]["attributes"]["messaging.destination.name"] == "default"
    assert tries[0]["links"] == tries[1]["links"] == [named(spans, "enqueue fails")[0]["id"]]
