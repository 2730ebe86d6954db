"""Changing a task over HTTP, what happened to it, and what it called: on both databases."""

import asyncio
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from tests.contract.acts import DONE, claim_one, finish
from tests.http.conftest import SomeKeys, asking, code
from tests.http.test_events import working

ACME = Caller(name="acme's", tenant="acme", scopes=frozenset({"tasks:control", "tasks:read"}))
NOBODY = "/v1/tasks/01890000-0000-7000-8000-000000000000"
ANY = {"If-Match": "*"}


async def made(http: httpx.AsyncClient, **fields: object) -> str:
    wish = {"type": "pay", "kwargs": {"order": 7}, **fields}
    return f"/v1/tasks/{(await http.post('/v1/tasks', json=wish)).json()['id']}"


async def test_a_pending_task_is_changed_by_whoever_saw_it_last(http):
    path = await made(http)
    seen = await http.get(path)
    tag = {"If-Match": seen.headers["etag"]}
    wish = {"priority": 9, "queue": "vip", "delay": "1h", "max_tries": 7, "tags": ["b", "a"]}
    assert code(await http.patch(path, json=wish)) == "etag_needed"
    answer = await http.patch(path, json=wish, headers=tag)
    assert answer.status_code == 200, answer.text
    changed = answer.json()
    assert {name: changed[name] for name in ("priority", "queue", "max_tries", "tags")} == {
        "priority": 9, "queue": "vip", "max_tries": 7, "tags": ["a", "b"],
    }  # fmt: skip
    assert changed["run_at"] > changed["created_at"]
    late = await http.patch(path, json={"priority": 1}, headers=tag)
    assert (late.status_code, code(late)) == (412, "changed_meanwhile")
    tag = {"If-Match": answer.headers["etag"]}
    assert (await http.patch(path, json={"expires": "2h"}, headers=tag)).json()["expires_at"]
    back = await http.patch(path, json={"expires": None, "max_tries": None}, headers=ANY)
    assert (back.json()["expires_at"], back.json()["max_tries"]) == (None, None)
    assert (await http.get(path)).json() == back.json()


async def test_every_change_is_in_the_audit_with_what_it_was(http):
    path = await made(http)
    await http.patch(path, json={"priority": 9}, headers=ANY)
    (record,) = (await http.get("/v1/audit?verb=task.edit")).json()["data"]
    assert (record["subject"], record["detail"]) == (path.rpartition("/")[2], {"priority": 9})


async def test_progress_does_not_make_an_etag_stale_and_an_unchanged_task_is_not_sent(http):
    path = await made(http)
    tag = (await http.get(path)).headers["etag"]
    assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 304
    await http.patch(path, json={"priority": 2}, headers=ANY)
    assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 200


async def test_what_runs_or_has_ended_is_a_conflict(app: Holdfast, http: httpx.AsyncClient):
    path = await made(http)
    store: Any = (await app.home.client()).store
    held = await claim_one(store)
    refused = await http.patch(path, json={"priority": 1}, headers=ANY)
    assert (refused.status_code, code(refused)) == (409, "not_possible")
    assert "is running" in refused.json()["detail"]
    await finish(store, held, DONE)
    assert "is done" in (await http.patch(path, json={"priority": 1}, headers=ANY)).text
    assert (await http.get(path)).json()["priority"] == 0


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"priority": 1_000_000},
        {"priority": None},
        {"queue": "a b"},
        {"delay": -1},
        {"delay": "1h", "run_at": "2030-01-01T00:00:00Z"},
        {"run_at": "2030-01-01T00:00:00"},
        {"max_tries": 0},
        {"payload": 1},
        {"tags": "x"},
        {"expires": "soon"},
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(here, wish):
    path = await made(here)
    before = (await here.get(path)).json()
    answer = await here.patch(path, json=wish, headers=ANY)
    assert answer.status_code == 422, answer.text
    code(answer)
    assert (await here.get(path)).json() == before
    assert (await here.patch(NOBODY, json={"priority": 1}, headers=ANY)).status_code == 404


async def test_another_tenants_task_is_not_there(app: Holdfast):
    async with asking(app) as http, asking(app, "acme", keys=[SomeKeys(acme=ACME)]) as acme:
        path, own = await made(http), await made(http, tenant_id="acme")
        for ask in (
            acme.patch(path, json={"priority": 1}, headers=ANY),
            acme.get(f"{path}/events"),
            acme.get(f"/v1/flows/{path.rpartition('/')[2]}/graph"),
        ):
            assert (await ask).status_code == 404
        assert (await acme.patch(own, json={"priority": 1}, headers=ANY)).status_code == 200
        assert (await http.get(path)).json()["priority"] == 0


async def test_what_happened_to_a_task_is_told_in_order(app: Holdfast):
    async with asking(app) as http, working(app):
        last = (await http.get("/v1/events/newest")).json()["last"]
        path = await made(http)
        await http.get(f"{path}?wait=50", timeout=60)
        page = (await http.get(f"{path}/events")).json()
        assert [event["type"] for event in page["data"]] == ["task.done"]
        assert page["data"][0]["worker_id"] == "w-1"
        assert page["last"] == page["data"][-1]["seq"] > last
        assert (await http.get(f"{path}/events?after={page['last']}")).json()["data"] == []
        assert (await http.get("/v1/events/newest")).json()["last"] == page["last"]
        assert (await http.get(f"{NOBODY}/events")).status_code == 404


async def test_a_function_is_drawn_with_all_that_it_called(app: Holdfast):
    @app.durable(name="leaf")
    async def leaf(n: int) -> int:
        return n

    @app.durable(name="branch")
    async def branch(n: int) -> int:
        return sum(await asyncio.gather(leaf(n), leaf(n + 1)))

    @app.durable(name="tree")
    async def tree() -> int:
        return await branch(1) + await leaf(5)

    async with asking(app) as http, working(app):
        id = (await http.post("/v1/tasks", json={"type": "tree"})).json()["id"]
        await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
        graph = (await http.get(f"/v1/flows/{id}/graph")).json()
        types = {node["task"]["id"]: node["task"]["type"] for node in graph["nodes"]}
        assert list(types.values()) == ["tree", "branch", "leaf", "leaf", "leaf"]
        told = [(types[e["parent_id"]], types[e["child_id"]]) for e in graph["edges"]]
        assert told == [("tree", "branch"), ("tree", "leaf")] + [("branch", "leaf")] * 2
        short = (await http.get(f"/v1/flows/{id}/graph?depth=1")).json()
        assert [node["cut"] for node in short["nodes"]] == [False, True, True]
        assert (await http.get(f"/v1/flows/{id}/graph?depth=51")).status_code == 422


async def test_what_a_function_called_for_another_tenant_is_not_shown_to_its_own(local: Holdfast):
    @local.durable(name="leaf")
    async def leaf(n: int) -> int:
        return n

    @local.durable(name="across")
    async def across() -> int:
        return await leaf(1) + await leaf.options(tenant="other")(2)

    reader = Caller(name="acme's", tenant="acme")
    keys = [SomeKeys(acme=reader)]
    async with asking(local) as http, asking(local, "acme", keys=keys) as acme, working(local):
        wish = {"type": "across", "tenant_id": "acme"}
        id = (await http.post("/v1/tasks", json=wish)).json()["id"]
        await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
        whole = (await http.get(f"/v1/flows/{id}/graph")).json()["nodes"]
        assert [node["task"]["tenant_id"] for node in whole] == ["acme", "acme", "other"]
        for nodes in (
            [node["task"] for node in (await acme.get(f"/v1/flows/{id}/graph")).json()["nodes"]],
            (await acme.get(f"/v1/flows/{id}")).json()["children"],
        ):
            assert {task["tenant_id"] for task in nodes} == {"acme"}
