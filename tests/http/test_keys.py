"""Keys that the store keeps, the audit, and requests that are done once."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast
from tests.http.conftest import KEY, asking, asking_api, code

PAY = {"type": "pay", "kwargs": {"order": 7}}


async def new_key(http, *scopes: str, **more: object) -> tuple[str, str]:
    wish = {"name": "ci", "scopes": list(scopes), **more}
    answer = await http.post("/v1/keys", json=wish)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    return made["record"]["id"], made["key"]


async def test_the_first_key_locks_the_door_and_a_revoked_one_is_refused(app: Holdfast):
    api = app.asgi()
    async with asking_api(api) as local:
        id, key = await new_key(local, "operator", tenant_id="acme")
        async with asyncio.timeout(60):
            while (await local.get("/v1/tasks")).status_code != 401:
                await asyncio.sleep(0.05)
        async with asking_api(api, key, client="192.0.2.7") as http:
            made = await http.post("/v1/tasks", json=PAY)
            assert made.json()["tenant_id"] == "acme"
            assert (await http.get("/v1/keys")).status_code == 403
            wrong = key[:-1] + ("a" if key[-1] != "a" else "b")
            for other in (wrong, f"hf_{'x' * 8}_{key[-32:]}", id):
                headers = {"Authorization": f"Bearer {other}"}
                assert (await http.get("/v1/tasks", headers=headers)).status_code == 401
            await (await app.desk()).revoke_key(id)
            async with asyncio.timeout(60):
                while (await http.get("/v1/tasks")).status_code != 401:
                    await asyncio.sleep(0.05)
        assert (await local.get("/v1/tasks")).status_code == 401  # it stays locked


async def test_keys_are_made_listed_and_revoked_over_http(app: Holdfast):
    async with asking(app, KEY, api_key=KEY) as http:
        id, key = await new_key(http, "viewer", expires="1h")
        (listed,) = (await http.get("/v1/keys")).json()["data"]
        assert (listed["id"], listed["valid"]) == (id, True)
        assert key not in (await http.get(f"/v1/keys/{id}")).text
        assert (await http.post(f"/v1/keys/{id}:revoke")).json()["valid"] is False
        assert (await http.get("/v1/keys/nobody")).status_code == 404
        refused = await http.post("/v1/keys", json={"name": "x", "scopes": ["everything"]})
        assert (refused.status_code, code(refused)) == (422, "invalid_input")
        verbs = [one["verb"] for one in (await http.get("/v1/audit")).json()["data"]]
        assert verbs == ["key.revoke", "key.create"]


async def test_whatever_a_key_changes_is_in_the_audit_under_its_name(app: Holdfast):
    async with asking(app, KEY, api_key=KEY) as http:
        id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
        await http.post(f"/v1/tasks/{id}:cancel")
        await http.post("/v1/queues/money:pause")
        page = (await http.get("/v1/audit?limit=1")).json()
        assert (page["data"][0]["verb"], page["data"][0]["actor"]) == ("queue.pause", "bootstrap")
        older = (await http.get(f"/v1/audit?before={page['next_before']}")).json()
        assert older["data"][0]["verb"] == "task.cancel"


async def test_no_key_is_in_the_log_or_the_database(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    async with (
        Holdfast(f"sqlite:///{tmp_path}/a.db") as app,
        asking(app, KEY, api_key=KEY) as http,
    ):
        wish = {"name": "ci", "scopes": ["admin"]}
        answer = await http.post("/v1/keys", json=wish, headers={"Idempotency-Key": "once"})
        key = answer.json()["key"]
        for shown in (key, key + "x", "hf_wrong_key"):
            await http.get("/v1/tasks", headers={"Authorization": f"Bearer {shown}"})
        await http.post("/v1/tasks", json=PAY, headers={"Authorization": f"Bearer {key}"})
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (KEY, key, key.rpartition("_")[2]):
        assert secret not in caplog.text
        assert secret.encode() not in stored


async def test_a_request_with_a_key_is_done_once_and_answered_the_same(app: Holdfast):
    async with asking(app) as http:
        batch = {"tasks": [PAY, PAY]}
        headers = {"Idempotency-Key": "batch-1"}
        first = await http.post("/v1/tasks/batch", json=batch, headers=headers)
        again = await http.post("/v1/tasks/batch", json=batch, headers=headers)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json() == first.json()
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert len((await http.get("/v1/tasks")).json()["data"]) == 2
        other = await http.post("/v1/tasks/batch", json={"tasks": [PAY]}, headers=headers)
        assert (other.status_code, code(other)) == (422, "key_reused")
        elsewhere = await http.post("/v1/recoveries", headers=headers)
        assert code(elsewhere) == "key_reused"
        refused = {"Idempotency-Key": "x" * 256}
        assert (await http.post("/v1/recoveries", headers=refused)).status_code == 400


async def test_a_refusal_is_answered_the_same_too_and_a_failure_is_tried_again(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    async with asking(app) as http:
        headers = {"Idempotency-Key": "a"}
        wrong = {"tasks": [{"type": "nobody"}]}
        first = await http.post("/v1/tasks/batch", json=wrong, headers=headers)
        again = await http.post("/v1/tasks/batch", json=wrong, headers=headers)
        assert (first.status_code, again.status_code) == (422, 422)
        assert again.json() == first.json()
        assert code(again) == "unknown_type"

        desk = app.desk
        with monkeypatch.context() as broken:

            async def failing(caller):
                found = await desk(caller)
                broken.setattr(found, "submit", None)
                return found

            broken.setattr(app, "desk", failing)
            async with asking(app) as other:
                answer = await other.post(
                    "/v1/tasks/batch", json={"tasks": [PAY]}, headers={"Idempotency-Key": "b"}
                )
                assert answer.status_code == 500
        answer = await http.post(
            "/v1/tasks/batch", json={"tasks": [PAY]}, headers={"Idempotency-Key": "b"}
        )
        assert answer.status_code == 201


async def test_the_same_request_at_the_same_time_is_told_to_wait(app: Holdfast, monkeypatch):
    began, go = asyncio.Event(), asyncio.Event()
    desk = app.desk

    async def slow(caller, client):
        found = await desk(caller, client)

        async def recover(**_: object) -> object:
            began.set()
            await go.wait()
            return await type(found).recover(found)

        monkeypatch.setattr(found, "recover", recover, raising=False)
        return found

    monkeypatch.setattr(app, "desk", slow)
    async with asking(app) as http:
        headers = {"Idempotency-Key": "r"}
        first = asyncio.create_task(http.post("/v1/recoveries", headers=headers))
        await began.wait()
        second = await http.post("/v1/recoveries", headers=headers)
        assert (second.status_code, code(second)) == (409, "in_progress")
        go.set()
        assert (await first).status_code == 200


async def test_an_operation_is_looked_at_begun_followed_and_done(app: Holdfast):
    async with asking(app) as http:
        await http.post("/v1/tasks/batch", json={"tasks": [PAY] * 5})
        wish = {"action": "cancel", "filter": {"status": "pending", "queue": "money"}}
        plan = await http.post("/v1/operations", json=wish | {"dry_run": True})
        assert (plan.status_code, plan.json()["state"], plan.json()["matched"]) == (
            200, "planned", 5,
        )  # fmt: skip
        assert (await http.get("/v1/operations")).json() == {"data": []}
        begun = await http.post("/v1/operations", json=wish)
        assert begun.status_code == 202
        place = begun.headers["location"]
        async with asyncio.timeout(60):
            while (found := (await http.get(place)).json())["state"] != "done":
                await asyncio.sleep(0.02)
        assert found["done"] == 5
        page = (await http.get("/v1/tasks?status=cancelled")).json()
        assert len(page["data"]) == 5
        cancelled = await http.post(f"{place}:cancel")
        assert cancelled.json()["state"] == "done"
        id = "01936f2e-8c3a-7b52-9d41-3f6f2a7c1e90"
        assert (await http.get(f"/v1/operations/{id}")).status_code == 404


async def test_numbers_over_time_and_logs(app: Holdfast):
    async with asking(app) as http:
        id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
        await http.post(f"/v1/tasks/{id}:cancel")
        await (await app.home.client()).store.roll_up()
        series = (await http.get("/v1/stats/timeseries")).json()
        assert sum(point["cancelled"] for point in series["data"]) <= 1
        now, hours = datetime.now(UTC), timedelta(hours=2)
        span = {"since": (now - hours).isoformat(), "until": (now + hours).isoformat()}
        found = await http.get("/v1/stats/timeseries", params={**span, "step": 3600})
        assert found.status_code == 200, found.text
        assert sum(point["cancelled"] for point in found.json()["data"]) == 1
        for wrong in ("step=61", "step=1", "since=yesterday", "since=2030-01-01T00:00:00"):
            assert (await http.get(f"/v1/stats/timeseries?{wrong}")).status_code == 422
        assert (await http.get(f"/v1/tasks/{id}/logs")).json()["data"] == []


async def test_a_batch_whose_answer_was_lost_makes_none_twice(app: Holdfast, monkeypatch):
    """Whatever became of what is remembered of the request."""

    async def forgetful(client, request, caller, body, act):
        return await act()

    monkeypatch.setattr("holdfast.http.endpoint.once", forgetful)
    async with asking(app) as http:
        batch, header = {"tasks": [PAY] * 3}, {"Idempotency-Key": "b"}
        first = await http.post("/v1/tasks/batch", json=batch, headers=header)
        again = await http.post("/v1/tasks/batch", json=batch, headers=header)
        other = await http.post("/v1/tasks/batch", json=batch)
    ids = [[one["task"]["id"] for one in answer.json()["data"]] for answer in (first, again, other)]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 6
