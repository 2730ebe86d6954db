"""What each worker holds and did: of a large fleet, and of workers that share a name."""

import uuid

import httpx
from prometheus_client.parser import text_string_to_metric_families

MANY = 1001  # more leases than one page of them shows


async def hold(http: httpx.AsyncClient, name: str, count: int) -> dict[str, str]:
    """A worker that claims so many tasks, and what it is known by."""
    wish = {"worker_id": name, "types": ["pay"], "max_concurrent": 1000}
    worker: dict[str, str] = (await http.post("/v1/workers", json=wish)).json()
    for want in (*[1000] * (count // 1000), count % 1000):
        tasks = [{"type": "pay", "kwargs": {"order": n}} for n in range(want)]
        assert (await http.post("/v1/tasks/batch", json={"tasks": tasks})).status_code == 201
        claim = {"worker": worker["worker"], "request_id": str(uuid.uuid4()), "want": want}
        claim |= {"lease_seconds": 60 if count > 1000 else 600}  # who ends first is listed first
        assert len((await http.post("/v1/claims", json=claim)).json()["data"]) == want
    return worker


async def test_what_a_worker_holds_is_seen_however_much_others_hold(http):
    await hold(http, "large", MANY)
    small = await hold(http, "small", 2)
    for name in ("small", small["id"]):
        leases = (await http.get("/v1/leases", params={"worker_id": name, "limit": 2})).json()
        assert [lease["worker_id"] for lease in leases["data"]] == ["small"] * 2
    own = (await http.get("/worker/stats?worker_id=small")).json()
    assert len(own["active_job_ids"]) == 2
    by_worker = (await http.get("/distributed/stats")).json()["by_worker"]
    held = {name: share["active_leases"] for name, share in by_worker.items()}
    assert held == {"large": MANY, "small": 2}


async def test_all_leases_are_seen_page_by_page(http):
    await hold(http, "large", MANY)
    await hold(http, "small", 2)
    assert len((await http.get("/worker/stats?worker_id=large")).json()["active_job_ids"]) == MANY
    page = await http.get("/v1/leases", params={"limit": 500})
    cursor, leases = page.json()["next_cursor"], page.json()["data"]
    while page.json()["has_more"]:
        page = await http.get(page.links["next"]["url"])
        leases += page.json()["data"]
    assert len({lease["task_id"] for lease in leases}) == len(leases) == MANY + 2
    assert [lease["worker_id"] for lease in leases[MANY:]] == ["small"] * 2
    other = await http.get("/v1/leases", params={"cursor": cursor, "expired": True})
    assert other.status_code == 400  # it was made for another question


async def test_workers_of_one_name_are_counted_together(http):
    await hold(http, "twin", 1)
    await hold(http, "twin", 2)
    share = (await http.get("/distributed/stats")).json()["by_worker"]["twin"]
    assert (share["active_leases"], share["max_jobs"]) == (3, 2000)
    page = (await http.get("/metrics")).text
    samples = [s for f in text_string_to_metric_families(page) for s in f.samples]
    held = [s.value for s in samples if s.name == "active_leases_total"]
    assert held == [3]


async def test_what_a_worker_got_over_http_is_counted_with_its_next_sign_of_life(http, monkeypatch):
    monkeypatch.setattr("holdfast.http.granting._BEAT", 0)  # each claim is one
    worker = await hold(http, "far", 2)
    claim = {"worker": worker["worker"], "request_id": str(uuid.uuid4())}
    await http.post("/v1/claims", json=claim)
    acquired = {"/worker/stats?worker_id=far": None, "/distributed/stats": "by_worker"}
    for path, part in acquired.items():
        found = (await http.get(path)).json()
        share = found[part]["far"] if part else found
        assert share["tasks_acquired_total"] == 2


async def test_and_when_it_leaves(http):
    worker = await hold(http, "far", 3)
    await http.post("/v1/workers:sign-off", json={"worker": worker["worker"]})
    found = (await http.get("/worker/stats?worker_id=far")).json()
    assert (found["state"], found["tasks_acquired_total"]) == ("stopped", 3)
    records = (await http.get("/v1/audit?verb=worker.*")).json()["data"]
    assert [(one["verb"], one["subject"], one["detail"]["id"]) for one in records] == [
        ("worker.sign_off", "far", worker["id"]),
        ("worker.register", "far", worker["id"]),
    ]
