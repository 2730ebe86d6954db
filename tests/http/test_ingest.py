"""CloudEvents as tasks."""

from typing import Any

import pytest

from holdfast import Holdfast
from tests.http.conftest import asking, code

ONE = {"Content-Type": "application/cloudevents+json"}
MANY = {"Content-Type": "application/cloudevents-batch+json; charset=utf-8"}
PATH = "/v1/ingest/cloudevents"
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/orders",
    "type": "paid",
    "time": "2030-01-15T09:30:00Z",
    "myextension": "x",
    "data": {"order": 7},
}


@pytest.fixture
def paid(app: Holdfast) -> Any:
    @app.durable(name="paid", queue="events")
    async def paid(event: dict[str, Any]) -> Any:
        return event["data"]

    return paid


async def test_a_structured_event_is_a_task_once(app, paid):
    async with asking(app) as http:
        first = await http.post(PATH, json=EVENT, headers=ONE)
        assert first.status_code == 201
        (made,) = first.json()["data"]
        assert (made["task"]["type"], made["task"]["queue"]) == ("paid", "events")
        again = await http.post(PATH, json=EVENT, headers=ONE)
        assert (again.status_code, again.json()["data"][0]["created"]) == (200, False)
        arguments = (await http.get(f"/v1/tasks/{made['task']['id']}/arguments")).text
        assert '"myextension":"x"' in arguments


async def test_a_batch_is_taken_whole_or_not_at_all(app, paid):
    async with asking(app) as http:
        wrong = await http.post(PATH, json=[EVENT, {**EVENT, "id": ""}], headers=MANY)
        assert (wrong.status_code, code(wrong)) == (422, "invalid_body")
        assert (await http.get("/v1/tasks")).json()["data"] == []
        good = await http.post(PATH, json=[EVENT, {**EVENT, "id": "e-2"}], headers=MANY)
        assert [one["created"] for one in good.json()["data"]] == [True, True]


async def test_a_binary_event_has_its_attributes_in_headers(app, paid):
    async with asking(app) as http:
        headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "x.y"}
        answer = await http.post(f"{PATH}?type=paid&queue=vip", json={"order": 1}, headers=headers)
        (made,) = answer.json()["data"]
        assert (made["task"]["type"], made["task"]["queue"]) == ("paid", "vip")
        missing = await http.post(f"{PATH}?type=paid", json={"order": 1})
        assert (missing.status_code, code(missing)) == (422, "invalid_body")


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ([], MANY, 422),
        ({}, MANY, 422),
        ([EVENT] * 1001, MANY, 422),
        ("x", ONE, 422),
        ({**EVENT, "specversion": "0.3"}, ONE, 422),
        ({**EVENT, "type": "nobody"}, ONE, 422),
        (EVENT, {"Content-Type": "text/plain"}, 415),
    ],
)
async def test_what_is_no_event_is_refused(here, body, headers, status):
    answer = await here.post(PATH, json=body, headers=headers)
    assert answer.status_code == status
    code(answer)
