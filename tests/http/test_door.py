"""Who is let in."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.desk.caller import SCOPES, Caller
from holdfast.desk.papers import KeyWish
from holdfast.errors import InvalidInput
from holdfast.http import house
from holdfast.http.routes import ALL
from holdfast.http.routing import PUBLIC, Routes
from holdfast.records import KeyRecord
from holdfast.stores.keys import Keys as StoredOnes
from tests.http.conftest import KEY, SomeKeys, asking, asking_api, code

ROUTES = [route for table in ALL for route in table]


async def test_without_keys_only_this_machine_is_answered(local):
    async with asking(local) as http:
        assert (await http.get("/v1/tasks")).status_code == 200
    async with asking(local, client="192.0.2.7") as http:
        answer = await http.get("/v1/tasks")
        assert (answer.status_code, code(answer)) == (403, "closed")
        assert (await http.get("/livez")).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"])
async def test_without_keys_this_machine_is_known_by_its_own_names(here, host):
    assert (await here.get("/v1/tasks", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example:8000"},
        {"Host": "127.0.0.1.nip.io"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_without_keys_a_page_that_was_led_here_is_refused(here, headers):
    answer = await here.post("/distributed/recover-orphans", headers=headers)
    assert (answer.status_code, code(answer)) == (403, "closed")


async def test_with_a_key_only_those_who_show_it_come_in(local):
    async with asking(local, api_key=KEY) as http:
        refused = [
            await http.get("/v1/tasks", headers={"Authorization": value})
            for value in (
                "",
                "Bearer",
                f"Bearer {KEY}x",
                f"Basic {KEY}",
                KEY,
                "Bearer " + "x" * 600,
            )
        ]
        refused.append(await http.get(f"/v1/tasks?key={KEY}"))
        for answer in refused:
            assert (answer.status_code, code(answer)) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert len({answer.text for answer in refused}) == 1
    async with asking(local, KEY, api_key=KEY, client="192.0.2.7") as http:
        assert (await http.get("/v1/tasks")).status_code == 200


async def test_the_key_may_come_from_the_environment_or_a_file(tmp_path, monkeypatch):
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("HOLDFAST_API_KEY_FILE", str(tmp_path / "key"))
    async with Holdfast(f"sqlite:///{tmp_path}/a.db") as app, asking(app) as http:
        assert (await http.get("/v1/tasks")).status_code == 401
        answer = await http.get("/v1/tasks", headers={"Authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200


def test_a_short_key_is_refused_without_being_repeated(monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", "hunter2")
    with pytest.raises(InvalidInput, match="16 to 500") as error:
        Holdfast("sqlite://:memory:")
    assert "hunter2" not in str(error.value)


def test_a_route_without_a_scope_cannot_be_registered():
    routes = Routes("some")
    with pytest.raises(TypeError):
        routes.get("/v1/new")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no scope"):
        routes.get("/v1/new", scope="tasks:everything")


def test_what_is_open_to_everybody_is_this_and_no_more():
    assert {r.path for r in ROUTES if r.scope == PUBLIC} == {
        "/health",
        "/livez",
        "/readyz",
        "/startupz",
    }
    assert {r.scope for r in ROUTES} - {PUBLIC} <= set(SCOPES)


def test_only_what_changes_nothing_is_a_get():
    reading = ("tasks:read", "tasks:payload", "fleet:read", PUBLIC)
    for route in ROUTES:
        if route.scope == "admin":
            continue
        assert (route.method == "GET") == (route.scope in reading), route.name


def test_no_two_operations_share_a_name():
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))


def filled(path: str) -> str:
    id = "01936f2e-8c3a-7b52-9d41-3f6f2a7c1e90"
    for name in ("task_id", "queue", "worker_id", "name", "token", "key_id", "operation_id"):
        path = path.replace(f"{{{name}}}", id)
    return path


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_every_route_wants_its_scope_and_no_other(local, tenant):
    callers = {
        scope.replace(":", "-"): Caller(name=scope, tenant=tenant, scopes=frozenset({scope}))
        for scope in SCOPES
    }
    async with asking(local, keys=[SomeKeys(**callers)]) as http:
        for route in ROUTES:
            if route.scope == PUBLIC or route.media == "text/event-stream":
                continue
            for scope in SCOPES:
                answer = await http.request(
                    route.method,
                    filled(route.path),
                    headers={"Authorization": f"Bearer {scope.replace(':', '-')}"},
                )
                may = scope in (route.scope, "admin") and not (route.whole and tenant)
                assert (answer.status_code == 403) != may, (route.name, scope, answer.text)
                assert answer.status_code < 500


async def test_another_tenants_task_is_as_unknown_as_none(app):
    keys = SomeKeys(
        **{name: Caller(name=name, tenant=name) for name in ("acme", "other")},
        all=Caller(name="all"),
    )
    api = app.asgi(keys=[keys])
    async with asking_api(api, "acme") as acme, asking_api(api, "other") as other:
        hers = {"type": "pay", "kwargs": {"order": 1}, "user_id": "ann"}
        id = (await acme.post("/v1/tasks", json=hers)).json()["id"]
        unknown = await other.get("/v1/tasks/01936f2e-8c3a-7b52-9d41-3f6f2a7c1e90")
        for method, path in [
            ("GET", ""), ("GET", "/result"), ("GET", "/why"), ("GET", "/attempts"),
            ("GET", "/arguments"), ("POST", ":cancel"), ("POST", ":retry"), ("POST", ":run-now"),
        ]:  # fmt: skip
            answer = await other.request(method, f"/v1/tasks/{id}{path}")
            assert answer.status_code == 404
            assert answer.json() == unknown.json()
        for path in ("/v1/dead-letters:replay", "/v1/dead-letters:discard", "/v1/tasks:cancel"):
            assert (await other.post(path, json={"ids": [id]})).status_code == 404
        assert (await other.get(f"/v1/flows/{id}")).status_code == 404
        assert (await other.post(f"/v1/flows/{id}/signals/x", json={})).status_code == 404
        assert (await other.get("/v1/tasks")).json()["data"] == []
        for wanted in ("tenant_id=acme", "user_id=ann", "user_id=ann&tenant_id=acme"):
            assert (await other.get(f"/v1/tasks?{wanted}")).json()["data"] == []
        assert len((await acme.get("/v1/tasks?user_id=ann")).json()["data"]) == 1
        assert (await acme.get(f"/v1/tasks/{id}")).json()["status"] == "pending"
        wish = {"type": "pay", "kwargs": {"order": 1}, "tenant_id": "acme"}
        assert (await other.post("/v1/tasks", json=wish)).status_code == 422
        cursor = await two_and_a_cursor(acme)
        assert (await other.get(f"/v1/tasks?limit=1&cursor={cursor}")).status_code == 400


async def two_and_a_cursor(http) -> str:
    await http.post("/v1/tasks", json={"type": "pay", "kwargs": {"order": 1}})
    cursor: str = (await http.get("/v1/tasks?limit=1")).json()["next_cursor"]
    return cursor


async def test_too_many_requests_of_one_key_are_put_off_and_others_are_not(local):
    keys = SomeKeys(one=Caller(name="one"), two=Caller(name="two"))
    api = local.asgi(keys=[keys], rate=0.001, burst=3)
    async with asking_api(api, "one") as one, asking_api(api, "two") as two:
        answers = await asyncio.gather(*(one.get("/v1/queues") for _ in range(5)))
        assert sorted(a.status_code for a in answers) == [200, 200, 200, 429, 429]
        refused = next(a for a in answers if a.status_code == 429)
        assert code(refused) == "too_many_requests"
        assert int(refused.headers["retry-after"]) > 100
        assert (await two.get("/v1/queues")).status_code == 200


async def test_wrong_keys_are_put_off_by_address_and_good_ones_are_not(local):
    api = local.asgi(api_key=KEY)
    async with asking_api(api, "wrong") as http, asking_api(api, KEY) as good:
        codes = [(await http.get("/v1/queues")).status_code for _ in range(80)]
        assert codes[0] == 401
        assert codes[-1] == 429
        assert (await good.get("/v1/queues")).status_code == 200


class Lookups:
    """How often the store was asked for keys: for one of them, and for all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.one = self.all = 0
        one, many = StoredOnes.key, StoredOnes.keys

        async def key(keys: StoredOnes, id: str) -> KeyRecord | None:
            self.one += 1
            return await one(keys, id)

        async def keys(keys: StoredOnes) -> list[KeyRecord]:
            self.all += 1
            return await many(keys)

        monkeypatch.setattr(StoredOnes, "key", key)
        monkeypatch.setattr(StoredOnes, "keys", keys)


async def stored_key(app: Holdfast) -> str:
    made = await (await app.desk()).create_key(KeyWish(name="ci", scopes=["viewer"]))
    return made.key


def guess(n: int) -> str:
    return f"hf_{n:08}_{'x' * 32}"


async def test_keys_that_somebody_tries_are_counted_before_they_are_looked_up(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    await stored_key(app)
    lookups = Lookups(monkeypatch)
    async with asking(app) as http:
        tries = [
            http.get("/v1/queues", headers={"Authorization": f"Bearer {guess(n)}"})
            for n in range(400)
        ]
        began = app.home.clock.boot()
        codes = [answer.status_code for answer in await asyncio.gather(*tries)]
        seconds = (app.home.clock.boot() - began) / 1_000_000
    assert codes[0] == 401
    assert codes.count(429) > 100
    assert lookups.one <= 50 + 5 * seconds + 1
    assert lookups.all <= 2 * seconds + 3  # the door asks too: whether there are any


async def test_a_good_key_comes_in_from_where_somebody_tries_others(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    """Also one that this process has never seen, and from behind the same proxy."""
    monkeypatch.setattr(house, "_FAILURES", 1e-6)  # nothing is forgotten, however slow we are
    good, revoked = await stored_key(app), await stored_key(app)
    await (await app.desk()).revoke_key(revoked.split("_")[1])
    async with asking(app) as http:

        async def shows(key: str) -> int:
            answer = await http.get("/v1/queues", headers={"Authorization": f"Bearer {key}"})
            return answer.status_code

        for n in range(60):
            await shows(guess(n))
        assert await shows(guess(99)) == 429
        lookups = Lookups(monkeypatch)
        for _ in range(5):
            assert await shows(good) == 200
        assert lookups.one == 0
        for wrong in (good[:-1] + ("a" if good[-1] != "a" else "b"), revoked):
            assert await shows(wrong) == 429


async def test_a_good_key_costs_its_address_nothing(app: Holdfast):
    good = await stored_key(app)
    async with asking(app, good) as http:
        answers = await asyncio.gather(*(http.get("/v1/queues") for _ in range(200)))
        assert {answer.status_code for answer in answers} == {200}
        wrong = await http.get("/v1/queues", headers={"Authorization": f"Bearer {guess(1)}"})
        assert wrong.status_code == 401


async def test_one_network_of_ipv6_is_one_address(local: Holdfast, monkeypatch):
    monkeypatch.setattr("holdfast.http.house._FAILURES", 0.001)
    api = local.asgi(api_key=KEY)
    codes = []
    for n in range(80):
        async with asking_api(api, "wrong", client=f"2001:db8:1:2::{n:x}") as http:
            codes.append((await http.get("/v1/queues")).status_code)
    assert codes[-1] == 429
    for other in ("2001:db8:1:3::1", "192.0.2.1", "::ffff:192.0.2.2"):
        async with asking_api(api, "wrong", client=other) as http:
            assert (await http.get("/v1/queues")).status_code == 401


async def test_it_can_be_mounted_under_a_prefix(local):
    host = Starlette(routes=[Mount("/jobs", local.asgi())])
    async with asking_api(host) as http:
        wish = {"type": "pay", "kwargs": {"order": 1}}
        answer = await http.post("/jobs/v1/tasks", json=wish)
        assert answer.headers["location"].startswith("/jobs/v1/tasks/")
        assert (await http.get(answer.headers["location"])).json() == answer.json()
        await http.post("/jobs/v1/tasks", json=wish)
        link = (await http.get("/jobs/v1/tasks?limit=1")).links["next"]["url"]
        assert (await http.get(link)).json()["data"][0]["id"] == answer.json()["id"]
        assert (await http.get("/jobs/nowhere")).status_code == 404
        described = (await http.get("/jobs/openapi.json")).json()
        assert described["servers"] == [{"url": "/jobs"}]


async def test_a_proxy_of_this_machine_is_no_neighbour(local: Holdfast):
    async with asking(local) as http:
        assert (await http.get("/v1/tasks")).status_code == 200
        for name in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"):
            assert (await http.get("/v1/tasks", headers={name: "1.2.3.4"})).status_code == 403
