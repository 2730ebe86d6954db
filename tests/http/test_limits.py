"""Limits over HTTP: who may, and what is written down."""

from holdfast import Holdfast
from holdfast.desk.caller import ROLES, Caller
from tests.http.conftest import KEY, SomeKeys, asking, code

MAIL = {"kind": "queue", "name": "mail", "max_concurrent": 5, "rate_limit": "100/m"}


async def test_a_limit_is_set_seen_and_lifted(http):
    assert (await http.get("/v1/limits")).json() == {"data": []}
    answer = (await http.post("/v1/limits", json=MAIL)).json()
    assert answer == {
        **MAIL, "max_concurrent_per_key": None, "running": 0, "set_by": "operator",
        "declared": None,
    }  # fmt: skip
    assert (await http.get("/v1/limits")).json() == {"data": [answer]}
    lifted = await http.post("/v1/limits:lift", json={"kind": "queue", "name": "mail"})
    assert lifted.json() == {"data": []}
    assert (await http.get("/v1/limits")).json() == {"data": []}
    audit = (await http.get("/v1/audit")).json()["data"]
    assert [(one["verb"], one["subject"], one["detail"]) for one in audit] == [
        ("limit.lift", "queue mail", {}),
        ("limit.set", "queue mail", {"max_concurrent": 5, "rate_limit": "100/m"}),
    ]


async def test_a_functions_own_limit_comes_back_when_the_operators_is_lifted(http, app: Holdfast):
    @app.durable(name="narrow", max_concurrent=3)
    async def narrow() -> None: ...

    store = (await app.home.client()).store
    limit = narrow.traits.limit
    assert limit
    await store.limit("type", "narrow", limit, declared=True)
    place = {"kind": "type", "name": "narrow"}
    told = (await http.post("/v1/limits", json={**place, "max_concurrent": 1})).json()
    assert (told["set_by"], told["declared"]["max_concurrent"]) == ("operator", 3)
    (left,) = (await http.post("/v1/limits:lift", json=place)).json()["data"]
    assert (left["set_by"], left["max_concurrent"]) == ("code", 3)


async def test_bad_limits_are_refused(here):
    for wrong in ({}, {**MAIL, "max_concurrent": 0}, {**MAIL, "rate_limit": "fast"}):
        answer = await here.post("/v1/limits", json=wrong)
        assert answer.status_code == 422, answer.text
        code(answer)
    empty = await here.post("/v1/limits", json={"kind": "queue", "name": "mail"})
    assert code(empty) == "invalid_input"
    assert "lift the limit" in empty.json()["detail"]
    assert (await here.get("/v1/limits")).json() == {"data": []}


async def test_limits_are_for_those_who_steer_the_whole_fleet(local: Holdfast):
    keys = SomeKeys(
        viewer=Caller(name="viewer", scopes=frozenset(ROLES["viewer"])),
        operator=Caller(name="operator", scopes=frozenset(ROLES["operator"])),
        acme=Caller(name="acme", tenant="acme", scopes=frozenset(ROLES["operator"])),
    )
    may = {}
    for name in ("viewer", "operator", "acme"):
        async with asking(local, name, keys=[keys], api_key=KEY) as http:
            seen, done = await http.get("/v1/limits"), await http.post("/v1/limits", json=MAIL)
            may[name] = (seen.status_code, done.status_code)
    assert may == {"viewer": (200, 403), "operator": (200, 200), "acme": (403, 403)}
