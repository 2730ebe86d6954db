"""Workers that come with a tenant's key: what they say of themselves is nobody else's number."""

from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from tests.http.conftest import SomeKeys, asking_api, code
from tests.http.test_claims import claimed, registered

PAY = {"type": "pay", "kwargs": {"order": 7}}


@pytest.fixture
async def doors(app: Holdfast):
    """The API as the operator, and as two tenants, see it."""
    keys = SomeKeys(
        all=Caller(name="all"),
        **{name: Caller(name=name, tenant=name) for name in ("acme", "other")},
    )
    api = app.asgi(keys=[keys])
    async with (
        asking_api(api, "all") as everyone,
        asking_api(api, "acme") as acme,
        asking_api(api, "other") as other,
    ):
        yield everyone, acme, other


async def ready(http: httpx.AsyncClient, **more: Any) -> str:
    """Registered, and heard of."""
    worker = await registered(http, **more)
    await claimed(http, worker, want=1)
    return worker


async def test_a_tenants_worker_is_in_no_number_of_the_fleet(doors):
    everyone, acme, _ = doors
    await everyone.post("/v1/tasks/batch", json={"tasks": [PAY] * 31})
    await registered(everyone, worker_id="ours", max_concurrent=10)
    before = (await everyone.get("/v1/stats")).json()
    await registered(acme, worker_id="ours", max_concurrent=1000)
    await registered(acme, worker_id="theirs", max_concurrent=1000)
    after = (await everyone.get("/v1/stats")).json()
    for part in ("desired_workers", "workers", "by_worker", "recovery"):
        assert after[part] == before[part], part
    assert after["desired_workers"]["money"] == 4
    assert set(after["by_worker"]) == {"ours"}
    assert after["by_worker"]["ours"]["max_jobs"] == 10
    metrics = (await everyone.get("/metrics")).text
    assert "theirs" not in metrics
    assert (await everyone.get("/health")).json()["checks"]["fleet"].startswith("1 active")


async def test_but_it_is_listed_as_the_tenants(doors):
    everyone, acme, _ = doors
    await registered(acme, worker_id="theirs")
    (view,) = (await everyone.get("/v1/workers")).json()["data"]
    assert (view["worker_id"], view["tenant_id"]) == ("theirs", "acme")


async def test_it_hides_from_nobody_that_no_other_worker_serves_a_queue(doors):
    everyone, acme, other = doors
    await registered(acme)
    id = (await other.post("/v1/tasks", json=PAY)).json()["id"]
    (why,) = (await everyone.get("/v1/queues/money/why")).json()["data"]
    assert why["why"] == "no live worker serves it but those of tenants acme"
    (why,) = (await other.get(f"/v1/tasks/{id}/why")).json()["data"]
    assert why["why"] == "no worker is alive"
    (why,) = (await other.get("/v1/queues/money/why")).json()["data"]
    assert "acme" not in why["why"]
    own = (await acme.post("/v1/tasks", json=PAY)).json()["id"]
    (why,) = (await acme.get(f"/v1/tasks/{own}/why")).json()["data"]
    assert "nothing holds it back" in why["why"]


async def test_a_worker_cannot_say_that_it_has_more_slots_than_it_may(doors):
    _, acme, _ = doors
    wish = {"worker_id": "w", "types": ["pay"], "max_concurrent": 1001}
    assert (await acme.post("/v1/workers", json=wish)).status_code == 422


async def test_nor_that_more_of_them_are_taken_than_it_holds_leases(doors):
    everyone, acme, _ = doors
    worker = await registered(acme, worker_id="w", max_concurrent=2)
    await claimed(acme, worker, active=10_000)
    (view,) = (await everyone.get("/v1/workers")).json()["data"]
    assert (view["active"], view["utilization"]) == (0, 0.0)


async def test_one_key_registers_no_more_workers_than_it_may(app: Holdfast, monkeypatch):
    monkeypatch.setattr("holdfast.http.house._STARTS_AT_ONCE", 3)
    async with asking_api(app.asgi()) as http:
        wish = {"worker_id": "w", "types": ["pay"]}
        answers = [await http.post("/v1/workers", json=wish) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429, 429]
    assert code(answers[-1]) == "too_many_requests"


async def test_a_name_never_means_a_tenants_worker(doors):
    """Also where the worker that bore it before is gone."""
    everyone, acme, _ = doors
    worker = await registered(everyone, worker_id="web:1")
    await ready(acme, worker_id="web:1")
    drained = await everyone.post("/v1/workers/web:1:drain")
    assert drained.json()["tenant_id"] is None
    await everyone.post("/v1/workers:sign-off", json={"worker": worker})
    assert (await everyone.get("/v1/workers/web:1")).json()["status"] == "stopped"
    await ready(acme, worker_id="web:2")
    refused = await everyone.post("/v1/workers/web:2:drain")
    assert (refused.status_code, code(refused)) == (422, "invalid_input")
    assert "of tenant 'acme'" in refused.json()["detail"]
    listed = (await everyone.get("/v1/workers")).json()["data"]
    theirs = next(one for one in listed if one["worker_id"] == "web:2")
    assert theirs["id"] in refused.json()["detail"]
    by_id = await everyone.post(f"/v1/workers/{theirs['id']}:drain")
    assert by_id.json()["tenant_id"] == "acme"


async def test_a_name_that_is_the_id_of_another_worker_means_that_one(doors):
    everyone, acme, _ = doors
    await registered(everyone, worker_id="web:1")
    id = (await everyone.get("/v1/workers/web:1")).json()["id"]
    await registered(everyone, worker_id=id)
    await registered(acme, worker_id=id)
    assert (await everyone.get(f"/v1/workers/{id}")).json()["worker_id"] == "web:1"


async def test_leases_are_counted_by_the_worker_and_not_by_its_name(doors):
    everyone, acme, _ = doors
    await registered(everyone, worker_id="web:1")
    worker = await registered(acme, worker_id="web:1")
    await acme.post("/v1/tasks", json=PAY)
    assert len(await claimed(acme, worker)) == 1
    stats = (await everyone.get("/worker/stats?worker_id=web:1")).json()
    assert stats["active_job_ids"] == []


async def test_of_several_that_live_under_one_name_none_is_drained_by_it(doors):
    everyone, _, _ = doors
    for _ in range(2):
        await ready(everyone, worker_id="twin")
    refused = await everyone.post("/v1/workers/twin:drain")
    assert (refused.status_code, code(refused)) == (422, "invalid_input")
    listed = (await everyone.get("/v1/workers")).json()["data"]
    assert all(one["id"] in refused.json()["detail"] for one in listed)
    assert {one["status"] for one in listed} == {"ready"}
    first, second = (one["id"] for one in listed)
    assert (await everyone.post(f"/v1/workers/{first}:drain")).json()["id"] == first
    assert (await everyone.get("/v1/workers/twin")).json()["id"] == second
