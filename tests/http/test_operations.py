"""Bulk work and the audit over HTTP, by error and by time: on both databases."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.papers import KeyWish
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Failure
from tests.contract.acts import claim_one, finish
from tests.http.conftest import asking, code


async def broken(
    app: Holdfast, http: httpx.AsyncClient, type: str, message: str, user: str | None = None
) -> str:
    """A dead letter of this error."""
    wish = {"type": "fail", "max_tries": 1, "user_id": user}
    id: str = (await http.post("/v1/tasks", json=wish)).json()["id"]
    store: Any = (await app.home.client()).store
    failure = Failure(type=type, message=message)
    await finish(store, await claim_one(store), Settlement(verdict=Verdict.FAILED, failure=failure))
    return id


async def ended(http: httpx.AsyncClient, wish: dict[str, Any]) -> dict[str, Any]:
    begun = await http.post("/v1/operations", json=wish)
    assert begun.status_code == 202, begun.text
    found = await http.get(begun.headers["location"], headers={"Prefer": "wait=50"}, timeout=60)
    assert found.headers["preference-applied"] == "wait=50"
    body: dict[str, Any] = found.json()
    return body


async def status(http: httpx.AsyncClient, id: str) -> str:
    found: str = (await http.get(f"/v1/tasks/{id}")).json()["status"]
    return found


async def test_dead_letters_of_one_error_are_replayed_and_others_stay(app: Holdfast):
    async with asking(app) as http:
        slow = await broken(app, http, "TimeoutError", "no answer from the BANK", "ann")
        other = await broken(app, http, "ValueError", "no such order")
        await http.post("/v1/tasks", json={"type": "fail", "user_id": "ann"})
        for filter in ({"error_type": "TimeoutError"}, {"error": "the bank"}, {"user_id": "ann"}):
            wish = {"action": "replay", "filter": {"status": "failed", **filter}}
            plan = (await http.post("/v1/operations", json=wish | {"dry_run": True})).json()
            assert (plan["matched"], plan["types"], plan["sample"]) == (1, {"fail": 1}, [slow])
            assert plan["filter"] == wish["filter"]
            listed = (await http.get("/v1/dead-letters", params=filter)).json()["data"]
            assert [task["id"] for task in listed] == [slow]
            assert listed[0]["last_error_type"] == "TimeoutError"
        wish = {"action": "replay", "filter": {"status": "failed", "user_id": "ann"}}
        done = await ended(http, wish | {"confirm_count": 1, "reason": "the bank is back"})
        assert (done["state"], done["done"], done["failed"]) == ("done", 1, 0)
        assert [await status(http, id) for id in (slow, other)] == ["pending", "failed"]
        (record,) = (await http.get("/v1/audit?verb=operation.*")).json()["data"]
        assert record["subject"] == done["id"]
        assert record["detail"]["reason"] == "the bank is back"


async def test_dead_letters_of_a_time_are_discarded(app: Holdfast):
    async with asking(app) as http:
        ids = [await broken(app, http, "Boom", str(n)) for n in range(3)]
        times = [(await http.get(f"/v1/tasks/{id}")).json()["finished_at"] for id in ids]
        window = {"ended_after": times[1], "ended_before": times[2]}
        wish = {"action": "discard", "filter": {"status": "failed", **window}}
        done = await ended(http, wish)
        assert (done["done"], done["matched"]) == (1, 1)
        assert (await http.get(f"/v1/tasks/{ids[1]}")).status_code == 404
        left = (await http.get("/v1/tasks?status=failed")).json()["data"]
        assert [task["id"] for task in left] == [ids[2], ids[0]]
        since = (await http.get("/v1/tasks", params={"created_after": times[1]})).json()["data"]
        assert [task["id"] for task in since] == [ids[2]]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"action": "replay", "filter": {"status": "pending"}}, "dead letters"),
        ({"action": "discard", "filter": {"status": "done"}}, "dead letters"),
        (
            {"action": "retry", "filter": {"status": "failed", "ended_after": "2030-01-01T00:00"}},
            "ended_after",
        ),
        ({"action": "retry", "filter": {"status": "failed"}, "rate": 0}, "rate"),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_not_begun(here, wish, words):
    answer = await here.post("/v1/operations", json=wish)
    assert answer.status_code == 422
    assert words in answer.json()["detail"] + str(answer.json().get("errors"))
    assert (await here.get("/v1/operations")).json() == {"data": []}


async def test_operations_are_listed_page_by_page(http):
    wish = {"action": "cancel", "filter": {"status": "pending"}}
    ids = [(await ended(http, wish))["id"] for _ in range(3)]
    first = (await http.get("/v1/operations?limit=2")).json()["data"]
    rest = (await http.get(f"/v1/operations?before={first[-1]['id']}")).json()["data"]
    assert [one["id"] for one in first + rest] == ids[::-1]
    assert (await http.get("/v1/operations?before=x")).status_code == 422


async def test_a_tenants_key_finds_an_empty_audit_of_another(app: Holdfast):
    wish = KeyWish(name="of-acme", scopes=["admin"], tenant_id="acme")
    made = await (await app.desk()).create_key(wish)
    async with asking(app, made.key) as http:
        await http.post("/v1/tasks", json={"type": "fail"})
        assert len((await http.get("/v1/audit")).json()["data"]) == 1
        for path in ("/v1/audit", "/v1/tasks"):
            answer = await http.get(path, params={"tenant_id": "other"})
            assert (answer.status_code, answer.json()["data"]) == (200, [])


async def test_the_audit_is_searched_by_who_what_whom_and_when(http):
    id = (await http.post("/v1/tasks", json={"type": "fail", "tenant_id": "acme"})).json()["id"]
    await http.post(f"/v1/tasks/{id}:cancel")
    await http.post("/v1/queues/mail:pause")

    async def verbs(**query: object) -> list[str]:
        page = (await http.get("/v1/audit", params=query)).json()
        assert page["next_before"] is None
        return [record["verb"] for record in page["data"]]

    every = ["queue.pause", "task.cancel", "task.enqueue"]
    assert await verbs() == every
    assert await verbs(verb="task.*") == every[1:]
    assert await verbs(verb="task.cancel", subject=id) == ["task.cancel"]
    assert await verbs(subject="mail") == ["queue.pause"]
    data = (await http.get("/v1/audit")).json()["data"]
    assert await verbs(actor=data[0]["actor"]) == every
    assert await verbs(actor="nobody") == await verbs(tenant_id="nobody") == []
    assert await verbs(since=data[1]["at"]) == every[:2]
    assert await verbs(until=data[1]["at"]) == every[2:]
    hour = datetime.fromisoformat(data[0]["at"]) + timedelta(hours=1)
    assert await verbs(since=hour.isoformat()) == []
    page = (await http.get("/v1/audit?limit=1&verb=task.*")).json()
    assert page["next_before"] == data[1]["seq"]
    assert await verbs(limit=2, verb="task.*") == every[1:]
    older = (await http.get(f"/v1/audit?verb=task.*&before={data[1]['seq']}")).json()
    assert [record["seq"] for record in older["data"]] == [data[2]["seq"]]
    assert code(await http.get("/v1/audit?since=yesterday")) == "invalid_parameter"
