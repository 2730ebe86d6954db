"""Workers that come over HTTP: the same guarantees."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from holdfast.tasks.lifecycle import Settlement, Verdict
from tests.app.conftest import until
from tests.http.conftest import SomeKeys, asking, asking_api, code

PAY = {"type": "pay", "kwargs": {"order": 7}}


async def registered(http: httpx.AsyncClient, **more: Any) -> str:
    wish = {"worker_id": "far-1", "types": ["pay", "fail"], "max_concurrent": 10, **more}
    answer = await http.post("/v1/workers", json=wish)
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["worker"]
    return token


async def claimed(http: httpx.AsyncClient, worker: str, **more: Any) -> list[dict[str, Any]]:
    body = {"worker": worker, "request_id": str(uuid4()), "want": 10, **more}
    answer = await http.post("/v1/claims", json=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def lapse(app: Holdfast, task: str) -> None:
    """As if its holder had been away for long."""
    store = (await app.home.client()).store
    (lease,) = [one for one in await store.leases() if str(one.task) == task]
    assert await store.revoke(lease.task, lease.fence)
    assert len(await store.recover()) == 1


async def test_a_task_is_claimed_renewed_reported_and_settled(http):
    worker = await registered(http)
    id = (await http.post("/v1/tasks", json=PAY | {"user_id": "ann"})).json()["id"]
    (task,) = await claimed(http, worker)
    assert (task["task_id"], task["type"], task["attempt"]) == (id, "pay", 1)
    assert task["user_id"] == "ann"
    assert task["payload"]["kwargs"] == {"order": 7} or task["payload"]["args"] == [7]
    assert (await http.get(f"/v1/tasks/{id}")).json()["locked_by"] == "far-1"
    lease = f"/v1/leases/{task['lease']}"
    renewed = await http.post(f"{lease}:renew", json={"lease_seconds": 90})
    assert renewed.json() == {"cancel_requested": False}
    assert (await http.get("/v1/leases")).json()["data"][0]["seconds_left"] > 60
    said = await http.post(f"{lease}:progress", json={"percent": 50, "message": "half way"})
    assert said.status_code == 204
    assert (await http.get(f"/v1/tasks/{id}")).json()["progress"] == 50
    for _ in range(2):  # the answer to the first one may have been lost
        settled = await http.post(f"{lease}:settle", json={"outcome": "done", "result": {"a": 1}})
        assert settled.json() == {"ended": "done"}
    assert (await http.get(f"/v1/tasks/{id}/result")).json()["result"] == {"a": 1}
    assert await claimed(http, worker) == []


async def test_a_claim_whose_answer_was_lost_is_asked_for_again(http):
    worker = await registered(http)
    for _ in range(2):
        await http.post("/v1/tasks", json=PAY)
    request = str(uuid4())
    (task,) = await claimed(http, worker, request_id=request, want=1)
    (again,) = await claimed(http, worker, request_id=request, want=1)
    assert (again["task_id"], again["fence"]) == (task["task_id"], task["fence"])
    (other,) = await claimed(http, await registered(http), request_id=request)
    assert other["task_id"] != task["task_id"]


async def test_a_late_worker_is_told_that_its_lease_is_lost_and_changes_nothing(app, http):
    worker = await registered(http)
    id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
    (old,) = await claimed(http, worker)
    await lapse(app, id)
    async with asyncio.timeout(60):
        while not (new := await claimed(http, worker, wait=5)):
            pass
    assert new[0]["fence"] > old["fence"]
    for verb, body in [
        ("renew", {}),
        ("progress", {"percent": 1}),
        ("settle", {"outcome": "done", "result": "late"}),
    ]:
        late = await http.post(f"/v1/leases/{old['lease']}:{verb}", json=body)
        assert (late.status_code, code(late)) == (409, "lease_lost")
    good = {"outcome": "done", "result": "in time"}
    assert (await http.post(f"/v1/leases/{new[0]['lease']}:settle", json=good)).status_code == 200
    assert (await http.get(f"/v1/tasks/{id}/result")).json()["result"] == "in time"


async def test_a_worker_that_only_renews_is_heard_of(app: Holdfast, monkeypatch):
    monkeypatch.setattr("holdfast.http.granting._BEAT", 0)
    async with asking(app) as http:
        worker = await registered(http, max_concurrent=1)
        await http.post("/v1/tasks", json=PAY)
        (task,) = await claimed(http, worker, want=1)

        async def beat() -> str:
            return str((await http.get("/v1/workers/far-1")).json()["last_heartbeat"])

        before = await beat()
        assert (await http.post(f"/v1/leases/{task['lease']}:renew", json={})).status_code == 200
        assert await beat() > before


async def test_what_was_lost_in_company_is_to_run_alone_from_the_second_time_on(app, http):
    store = (await app.home.client()).store
    ids = [(await http.post("/v1/tasks", json=PAY)).json()["id"] for _ in range(2)]
    told = []
    for _ in range(3):
        tasks = await claimed(http, await registered(http))
        assert {task["task_id"] for task in tasks} == set(ids)
        told.append({task["alone"] for task in tasks})
        for lease in await store.leases():
            assert await store.revoke(lease.task, lease.fence)
        await store.recover()
    assert told == [{False}, {False}, {True}]


async def test_two_workers_that_chose_the_same_request_id_share_no_lease(app, http):
    request = str(uuid4())
    id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
    (old,) = await claimed(http, await registered(http), request_id=request)
    await lapse(app, id)
    other = await registered(http, worker_id="far-2")
    async with asyncio.timeout(60):
        while not (new := await claimed(http, other, request_id=request, wait=5)):
            pass
    late = await http.post(f"/v1/leases/{old['lease']}:settle", json={"outcome": "done"})
    assert (late.status_code, code(late)) == (409, "lease_lost")
    kept = await http.post(f"/v1/leases/{new[0]['lease']}:renew", json={})
    assert kept.status_code == 200


async def test_a_failed_attempt_is_tried_again_until_its_tries_are_spent(http):
    worker = await registered(http)
    wish = {**PAY, "max_tries": 2}
    id = (await http.post("/v1/tasks", json=wish)).json()["id"]
    error = {"type": "Timeout", "message": "no answer", "traceback": "at line 7"}
    (task,) = await claimed(http, worker)
    end = {"outcome": "failed", "error": error}
    assert (await http.post(f"/v1/leases/{task['lease']}:settle", json=end)).json() == {
        "ended": "retry"
    }
    await http.post(f"/v1/tasks/{id}:run-now")
    (task,) = await claimed(http, worker, wait=5)
    assert task["attempt"] == 2
    assert (await http.post(f"/v1/leases/{task['lease']}:settle", json=end)).json() == {
        "ended": "failed"
    }
    found = (await http.get(f"/v1/tasks/{id}/result")).json()
    assert (found["status"], found["error"]) == ("failed", error)


async def test_an_attempt_may_be_snoozed_handed_back_or_given_up_for_good(http):
    worker = await registered(http)
    endings: list[tuple[dict[str, Any], str]] = [
        ({"outcome": "snoozed", "delay": "1h"}, "pending"),
        ({"outcome": "handed_back"}, "pending"),
        ({"outcome": "failed", "retryable": False}, "failed"),
        ({"outcome": "cancelled"}, "cancelled"),
    ]
    for outcome, status in endings:
        id = (await http.post("/v1/tasks", json={**PAY, "priority": 9})).json()["id"]
        (task,) = await claimed(http, worker, want=1)
        assert task["task_id"] == id
        answer = await http.post(f"/v1/leases/{task['lease']}:settle", json=outcome)
        assert answer.status_code == 200
        view = (await http.get(f"/v1/tasks/{id}")).json()
        assert view["status"] == status
        if outcome["outcome"] == "handed_back":
            assert view["try_count"] == 0
            await http.post(f"/v1/tasks/{id}:cancel")


async def test_a_cancel_is_heard_with_the_next_renewal(http):
    worker = await registered(http)
    id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
    (task,) = await claimed(http, worker)
    await http.post(f"/v1/tasks/{id}:cancel")
    renewed = await http.post(f"/v1/leases/{task['lease']}:renew", json={})
    assert renewed.json() == {"cancel_requested": True}


async def test_a_worker_serves_what_it_registered_for_and_nothing_else(http):
    await http.post("/v1/tasks", json=PAY)
    for more in (
        {"types": ["fail"]},
        {"queues": ["mail"]},
        {"tags": ["other"]},
        {"types": ["pay@2"]},
    ):
        assert await claimed(http, await registered(http, **more)) == []
    needy = {**PAY, "requires": ["gpu"], "idempotency_key": "g"}
    await http.post("/v1/tasks", json=needy)
    plain = await claimed(http, await registered(http, queues=["money"], tags=["billing"]))
    assert len(plain) == 1
    assert len(await claimed(http, await registered(http, capabilities=["gpu"]))) == 1


async def test_a_worker_of_one_tenant_gets_no_others_tasks(app: Holdfast):
    keys = SomeKeys(**{name: Caller(name=name, tenant=name) for name in ("acme", "other")})
    api = app.asgi(keys=[keys])
    async with asking_api(api, "acme") as acme, asking_api(api, "other") as other:
        await acme.post("/v1/tasks", json=PAY)
        assert await claimed(other, await registered(other)) == []
        assert len(await claimed(acme, await registered(acme))) == 1


async def test_tenants_are_served_in_turn(http):
    worker = await registered(http)
    for tenant, count in (("big", 20), ("small", 2)):
        wishes = {"tasks": [{**PAY, "tenant_id": tenant}] * count}
        await http.post("/v1/tasks/batch", json=wishes)
    order = [(await claimed(http, worker, want=1))[0]["tenant_id"] for _ in range(4)]
    assert order == ["big", "small", "big", "small"]


async def test_work_of_a_new_kind_is_found_by_the_next_look(http):
    """Also without waiting: what kinds of work there are may have changed since the last one."""
    worker = await registered(http)
    assert await claimed(http, worker) == []
    await http.post("/v1/tasks", json=PAY)
    assert len(await claimed(http, worker)) == 1
    await http.post("/v1/tasks", json={**PAY, "queue": "other"})
    assert len(await claimed(http, worker)) == 1


async def test_forged_and_foreign_tokens_are_refused(app: Holdfast):
    keys = SomeKeys(one=Caller(name="one"), two=Caller(name="two"))
    api = app.asgi(keys=[keys])
    async with asking_api(api, "one") as one, asking_api(api, "two") as two:
        worker = await registered(one)
        id = (await one.post("/v1/tasks", json=PAY)).json()["id"]
        (task,) = await claimed(one, worker)
        lease = task["lease"]
        flipped = lease[:-3] + ("AAA" if lease[-3:] != "AAA" else "BBB")
        for http, token in [
            (two, lease),
            (one, flipped),
            (one, worker),
            (one, "x"),
            (one, "x" * 99),
        ]:
            for verb, body in [("renew", {}), ("settle", {"outcome": "done"})]:
                answer = await http.post(f"/v1/leases/{token}:{verb}", json=body)
                assert (answer.status_code, code(answer)) == (403, "not_yours")
        body = {"worker": worker, "request_id": str(uuid4())}
        assert code(await two.post("/v1/claims", json=body)) == "not_yours"
        assert code(await one.post("/v1/claims", json=body | {"worker": lease})) == "not_yours"
        assert (await one.get(f"/v1/tasks/{id}")).json()["status"] == "running"
    async with asking(app, "one", keys=[keys]) as elsewhere:  # another server, another seal
        answer = await elsewhere.post(f"/v1/leases/{lease}:renew", json={})
        assert (answer.status_code, code(answer)) == (403, "signed_elsewhere")


async def test_a_claim_waits_for_work(http):
    worker = await registered(http)
    waiting = asyncio.create_task(claimed(http, worker, wait=30))
    await asyncio.sleep(0)
    await http.post("/v1/tasks", json=PAY)
    assert len(await waiting) == 1


async def test_a_worker_is_seen_and_drained_and_signs_off(app: Holdfast, monkeypatch):
    monkeypatch.setattr("holdfast.http.granting._BEAT", 0)
    async with asking(app) as http:
        worker = await registered(http, max_concurrent=4, hostname="far")
        await http.post("/v1/tasks", json=PAY)
        await claimed(http, worker, want=1)
        view = (await http.get("/v1/workers/far-1")).json()
        assert (view["max_concurrent"], view["active"], view["status"]) == (4, 1, "ready")
        await http.post("/v1/workers/far-1:drain")
        await http.post("/v1/tasks", json=PAY)
        body = {"worker": worker, "request_id": str(uuid4())}
        assert (await http.post("/v1/claims", json=body)).json() == {"data": [], "drain": True}
        assert (await http.post("/v1/workers:sign-off", json={"worker": worker})).status_code == 204
        assert (await http.get("/v1/workers/far-1")).json()["status"] == "stopped"


async def test_what_was_cancelled_or_is_past_its_time_is_not_handed_out(http):
    worker = await registered(http)
    id = (await http.post("/v1/tasks", json={**PAY, "expires": 0.001})).json()["id"]
    async with asyncio.timeout(60):
        while (await http.get(f"/v1/tasks/{id}")).json()["status"] != "failed":
            assert await claimed(http, worker) == []


@pytest.mark.parametrize(
    "body",
    [
        {"outcome": "lost"},
        {"outcome": "waiting"},
        {},
        {"outcome": "snoozed", "delay": -5},
        {"outcome": "snoozed", "delay": "soon"},
        {"outcome": "done", "fence": 7},
    ],
)
async def test_an_outcome_that_is_none_is_refused_and_the_lease_stays(here, body):
    worker = await registered(here)
    await here.post("/v1/tasks", json=PAY)
    (task,) = await claimed(here, worker)
    answer = await here.post(f"/v1/leases/{task['lease']}:settle", json=body)
    assert answer.status_code == 422
    assert (await here.post(f"/v1/leases/{task['lease']}:renew", json={})).status_code == 200


async def test_a_worker_gets_no_more_than_its_free_slots_take(http):
    worker = await registered(http, max_concurrent=3)
    for _ in range(4):
        await http.post("/v1/tasks", json=PAY)
    asked = {"worker": worker, "request_id": str(uuid4()), "want": 4}
    refused = await http.post("/v1/claims", json=asked)
    assert (refused.status_code, code(refused)) == (422, "invalid_input")
    assert "max_concurrent 3" in refused.json()["detail"]
    assert len(await claimed(http, worker, want=3, active=1)) == 2
    assert await claimed(http, worker, want=1, active=3, wait=0.2) == []


async def test_a_worker_that_waits_for_work_hears_that_it_is_to_drain(http, monkeypatch):
    monkeypatch.setattr("holdfast.http.granting._BEAT", 0)  # each look is a sign of life
    answer = await http.post("/v1/workers", json={"worker_id": "far-1", "types": ["pay"]})
    worker = answer.json()

    async def waits() -> bool:
        found = (await http.get(f"/v1/workers/{worker['id']}")).json()
        return bool(found["status"] == "ready")

    body = {"worker": worker["worker"], "request_id": str(uuid4()), "wait": 30}
    async with asyncio.TaskGroup() as both:
        claim = both.create_task(http.post("/v1/claims", json=body))
        await until(waits)
        assert (await http.post(f"/v1/workers/{worker['id']}:drain")).status_code == 200
        found = (await asyncio.wait_for(claim, 20)).json()
    assert found == {"data": [], "drain": True}


async def test_who_settles_hears_what_became_of_the_attempt(http):
    worker = await registered(http)
    failed = {"outcome": "failed", "error": {"message": "no luck"}}
    ids = [(await http.post("/v1/tasks", json=PAY)).json()["id"] for _ in range(2)]
    first, second = [f"/v1/leases/{task['lease']}" for task in await claimed(http, worker)]
    await http.post(f"/v1/tasks/{ids[0]}:cancel")
    for _ in range(2):
        assert (await http.post(f"{first}:settle", json=failed)).json() == {"ended": "cancelled"}
    await http.post(f"{second}:settle", json={"outcome": "done"})
    assert (await http.post(f"{second}:settle", json=failed)).json() == {"ended": "done"}
    seen = [(await http.get(f"/v1/tasks/{id}")).json()["status"] for id in ids]
    assert seen == ["cancelled", "done"]


async def test_who_shares_the_end_of_what_is_settled_is_told(app, http):
    """On its side nobody knows whether others wait for it, too."""
    store = (await app.home.client()).store
    await http.post("/v1/tasks", json={"type": "fail"})
    (lane,) = (await store.lanes()).lanes
    claim = await store.claim(worker=1, lanes=[lane], want=1, lease=timedelta(minutes=1))
    (waiter,) = claim.tasks
    watched = UUID((await http.post("/v1/tasks", json=PAY)).json()["id"])
    waits = Settlement(verdict=Verdict.WAITING, watched=(watched,))
    await store.settle([(waiter.lease, waits)])
    (task,) = await claimed(http, await registered(http, types=["pay"]))
    await http.post(f"/v1/leases/{task['lease']}:settle", json={"outcome": "done"})
    found = await http.get(f"/v1/tasks/{waiter.lease.task}")
    assert found.json()["status"] == "pending"
