"""Tasks over HTTP, on both databases."""

import asyncio
from uuid import uuid4

import httpx
import pytest

from holdfast import Holdfast
from holdfast.sealing import KeyRing
from tests.http.conftest import asking, code


async def made(http: httpx.AsyncClient, **fields: object) -> str:
    answer = await http.post("/v1/tasks", json={"type": "pay", "kwargs": {"order": 7}, **fields})
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


@pytest.mark.parametrize("path", ["/v1/tasks", "/tasks"])
async def test_a_task_is_made_and_found_where_the_answer_says(http, path):
    answer = await http.post(path, json={"type": "pay", "input": {"order": 7}, "priority": 3})
    assert answer.status_code == 201
    task = answer.json()
    assert (task["type"], task["queue"], task["priority"]) == ("pay", "money", 3)
    assert answer.headers["location"] == f"/v1/tasks/{task['id']}"
    assert (await http.get(answer.headers["location"])).json() == task
    assert (await http.get(f"/tasks/{task['id']}")).json() == task


async def test_twice_the_same_key_is_one_task_and_another_payload_a_conflict(http):
    wish = {"type": "pay", "kwargs": {"order": 7}}
    headers = {"Idempotency-Key": "order-7"}
    first = await http.post("/v1/tasks", json=wish, headers=headers)
    again = await http.post("/v1/tasks", json=wish, headers=headers)
    other = await http.post("/v1/tasks", json=wish | {"kwargs": {"order": 8}}, headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["id"] == again.json()["id"]
    assert code(other) == "key_conflict"


async def test_a_batch_is_made_whole_or_not_at_all(http):
    good = {"type": "pay", "kwargs": {"order": 1}}
    refused = await http.post("/v1/tasks/batch", json={"tasks": [good, {"type": "nobody"}]})
    assert code(refused) == "unknown_type"
    assert "pay" in refused.json()["detail"]
    assert (await http.get("/v1/tasks")).json()["data"] == []
    answer = await http.post("/v1/tasks/batch", json={"tasks": [good, good]})
    assert answer.status_code == 201
    assert [one["created"] for one in answer.json()["data"]] == [True, True]
    assert len((await http.get("/v1/tasks")).json()["data"]) == 2


@pytest.mark.parametrize("path", ["/v1/tasks", "/tasks"])
async def test_the_user_of_a_task_is_shown_and_asked_for(http, path):
    ids = [await made(http, user_id=user) for user in ("ann", "bob", None, "ann")]
    batch = {"tasks": [{"type": "fail", "user_id": "ann"}, {"type": "fail"}]}
    many = (await http.post("/v1/tasks/batch", json=batch)).json()["data"]
    assert [one["task"]["user_id"] for one in many] == ["ann", None]
    seen = [(await http.get(f"{path}/{id}")).json()["user_id"] for id in ids]
    assert seen == ["ann", "bob", None, "ann"]
    found, next = [], f"{path}?user_id=ann&limit=1"
    while next:
        answer = await http.get(next)
        found += [task["id"] for task in answer.json()["data"]]
        next = answer.links.get("next", {}).get("url")
    assert found == [many[0]["task"]["id"], ids[3], ids[0]]
    await http.post(f"/v1/tasks/{ids[0]}:cancel")
    for wanted, those in (("status=cancelled", [ids[0]]), ("queue=money", [ids[3], ids[0]])):
        answer = await http.get(f"{path}?user_id=ann&{wanted}")
        assert [task["id"] for task in answer.json()["data"]] == those
    assert (await http.get(f"{path}?user_id=nobody")).json()["data"] == []


@pytest.mark.parametrize("user", ["", "x" * 201, "a\0b", "a\nb", "\x9b31m", 7])
async def test_a_user_that_cannot_be_is_refused_by_name(http, user):
    for path, wish in (
        ("/tasks", {"type": "pay", "kwargs": {"order": 7}, "user_id": user}),
        ("/tasks", {"type": "nobody", "allow_unknown": True, "user_id": user}),
        ("/v1/tasks/batch", {"tasks": [{"type": "fail"}, {"type": "fail", "user_id": user}]}),
    ):
        answer = await http.post(path, json=wish)
        assert answer.status_code == 422
        assert code(answer) in ("invalid_input", "invalid_body")
        assert "user_id" in answer.json()["detail"]
    assert (await http.get("/tasks")).json()["data"] == []
    if user != 7:  # in an address it is a text
        for path in ("/tasks", "/v1/tasks", "/v1/dead-letters"):
            refused = await http.get(path, params={"user_id": user})
            assert refused.status_code == 422, refused.text
            assert "user_id" in refused.text


async def test_the_same_key_for_another_user_is_the_same_task(http):
    id = await made(http, user_id="ann", idempotency_key="order-7")
    wish = {"type": "pay", "kwargs": {"order": 7}, "user_id": "bob", "idempotency_key": "order-7"}
    again = await http.post("/v1/tasks", json=wish)
    assert (again.status_code, again.json()["id"]) == (200, id)
    assert again.json()["user_id"] == "ann"


@pytest.mark.parametrize("what", [{"type": "fail"}, {"type": "nobody", "allow_unknown": True}])
async def test_what_would_expire_before_its_time_is_refused(http, what):
    answer = await http.post("/v1/tasks", json=what | {"delay": "1h", "expires": "1m"})
    assert (answer.status_code, code(answer)) == (422, "invalid_input")
    assert "give a longer expires" in answer.json()["detail"]
    assert (await http.get("/tasks")).json()["data"] == []


async def test_arguments_that_do_not_fit_the_function_are_refused(http):
    answer = await http.post("/v1/tasks", json={"type": "pay", "kwargs": {"amount": 7}})
    assert answer.status_code == 422
    assert code(answer) == "invalid_input"


async def test_pages_go_on_with_signed_cursors_and_links(http):
    ids = [await made(http) for _ in range(5)]
    seen: list[str] = []
    path = "/v1/tasks?limit=2&queue=money"
    while path:
        answer = await http.get(path)
        page = answer.json()
        assert page["has_more"] == (page["next_cursor"] is not None)
        seen += [task["id"] for task in page["data"]]
        path = answer.links.get("next", {}).get("url")
    assert seen == ids[::-1]


async def test_a_cursor_fits_only_the_list_and_the_server_that_gave_it(http, app):
    for _ in range(2):
        await made(http)
    cursor = (await http.get("/v1/tasks?limit=1")).json()["next_cursor"]
    for wrong in (f"queue=money&cursor={cursor}", f"cursor={cursor[:-2]}AA", "cursor=W10"):
        answer = await http.get(f"/v1/tasks?{wrong}")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["parameter"] == "cursor"
        assert "HOLDFAST_SIGNING_KEY" not in answer.json()["detail"]
    async with asking(app) as elsewhere:
        answer = await elsewhere.get(f"/v1/tasks?cursor={cursor}")
        assert answer.status_code == 400
        assert "HOLDFAST_SIGNING_KEY" in answer.json()["detail"]
    async with (
        asking(app, signing_key="the same key for both") as one,
        asking(app, signing_key="the same key for both") as two,
    ):
        cursor = (await one.get("/v1/tasks?limit=1")).json()["next_cursor"]
        assert (await two.get(f"/v1/tasks?limit=1&cursor={cursor}")).status_code == 200


async def test_an_unchanged_task_is_not_sent_again(http):
    id = await made(http)
    tag = (await http.get(f"/v1/tasks/{id}")).headers["etag"]
    again = await http.get(f"/v1/tasks/{id}", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    await http.post(f"/v1/tasks/{id}:cancel")
    changed = await http.get(f"/v1/tasks/{id}", headers={"If-None-Match": tag})
    assert changed.json()["status"] == "cancelled"


async def test_cancel_retry_and_again_with_a_conflict_in_words(http):
    id = await made(http)
    cancelled = await http.post(f"/v1/tasks/{id}:cancel")
    assert cancelled.json() == {"changed": [id], "unchanged": [], "status": "cancelled"}
    assert (await http.post(f"/v1/tasks/{id}:cancel")).json() == cancelled.json()
    assert (await http.post(f"/v1/tasks/{id}:retry")).json()["changed"] == [id]
    again = await http.post(f"/v1/tasks/{id}:retry")
    assert (again.status_code, code(again)) == (409, "not_possible")
    assert (await http.get(f"/v1/tasks/{id}")).json()["status"] == "pending"


async def test_what_waits_for_its_time_can_be_run_now(http):
    id = await made(http, delay="1h")
    assert (await http.post(f"/v1/tasks/{id}:run-now")).status_code == 200
    assert (await http.get("/v1/queues/money")).json()["claimable"] == 1


async def test_why_and_attempts_and_arguments(http):
    id = await made(http)
    why = (await http.get(f"/v1/tasks/{id}/why")).json()["data"]
    assert why[0]["why"] == "no worker is alive"
    assert (await http.get(f"/v1/tasks/{id}/attempts")).json() == {"data": []}
    found = (await http.get(f"/v1/tasks/{id}/arguments")).json()
    assert found["kwargs"] == {"order": 7} or found["args"] == [7]


async def test_a_long_poll_answers_as_soon_as_the_task_ends(app: Holdfast):
    lifecycle = app.create_worker_lifecycle("w")
    async with asking(app) as http:
        id = await made(http)
        pending = await http.get(f"/v1/tasks/{id}/result")
        assert (pending.status_code, pending.json()["status"]) == (202, "pending")
        waiting = asyncio.create_task(
            http.get(f"/v1/tasks/{id}/result", headers={"Prefer": "wait=50"}, timeout=60)
        )
        seeing = asyncio.create_task(http.get(f"/v1/tasks/{id}?wait=50", timeout=60))
        working = asyncio.create_task(app.serve(lifecycle=lifecycle))
        answer = await waiting
        assert answer.status_code == 200
        assert answer.headers["preference-applied"] == "wait=50"
        assert answer.json()["result"] == "paid 7"
        assert (await seeing).json()["status"] == "done"
        attempts = (await http.get(f"/v1/tasks/{id}/attempts")).json()["data"]
        assert [(one["ended"], one["worker_id"]) for one in attempts] == [("done", "w")]
        lifecycle.request_drain()
        await working


@pytest.mark.parametrize("what", ["", "/result", "/why", "/attempts", "/arguments"])
async def test_an_unknown_task_and_an_id_that_is_none_look_alike(http, what):
    unknown, nonsense = f"/v1/tasks/{uuid4()}{what}", f"/v1/tasks/not-an-id{what}"
    one, other = await http.get(unknown), await http.get(nonsense)
    assert one.status_code == other.status_code == 404
    assert one.json() == other.json()


async def test_failed_tasks_are_dead_letters_to_be_replayed_or_discarded(app: Holdfast):
    lifecycle = app.create_worker_lifecycle("w")
    async with asking(app) as http:
        ids = []
        for _ in range(2):
            wish = {"type": "fail", "max_tries": 1}
            ids.append((await http.post("/v1/tasks", json=wish)).json()["id"])
        working = asyncio.create_task(app.serve(lifecycle=lifecycle))
        for id in ids:
            assert (await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)).json()["status"] == (
                "failed"
            )
        lifecycle.request_drain()
        await working
        letters = (await http.get("/v1/dead-letters")).json()["data"]
        assert {letter["id"] for letter in letters} == set(ids)
        (group,) = (await http.get("/v1/dead-letters/groups")).json()["data"]
        assert (group["type"], group["count"]) == ("fail", 2)
        replayed = await http.post("/v1/dead-letters:replay", json={"ids": ids[:1]})
        assert replayed.json()["changed"] == ids[:1]
        discarded = await http.post("/v1/dead-letters:discard", json={"ids": ids})
        assert discarded.json()["changed"] == ids[1:]
        assert (await http.get(f"/v1/tasks/{ids[1]}")).status_code == 404


async def test_what_is_sealed_is_shown_to_whoever_has_the_key(url):
    one, other = KeyRing({"one": bytes(range(32))}), KeyRing({"other": bytes(32)})
    async with Holdfast(url, encryption=one) as app, asking(app) as http:
        wish = {"type": "pay", "kwargs": {"order": 4711}, "allow_unknown": True}
        id = (await http.post("/v1/tasks", json=wish)).json()["id"]
        found = await http.get(f"/v1/tasks/{id}/arguments")
        assert found.json()["kwargs"] == {"order": 4711}
    async with Holdfast(url, encryption=other) as app, asking(app) as http:
        refused = await http.get(f"/v1/tasks/{id}/arguments")
        assert (refused.status_code, code(refused)) == (409, "sealed")
        assert (await http.get(f"/v1/tasks/{id}")).status_code == 200
    async with Holdfast(url) as app, asking(app) as http:
        assert "4711" not in (await http.get(f"/v1/tasks/{id}/arguments")).text
