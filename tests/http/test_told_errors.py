"""What remote workers say of a task is kept as our own workers would keep it."""

from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.sealing import KeyRing
from tests.http.conftest import asking
from tests.http.test_claims import claimed, registered

SECRET, CARD = "correct-horse-battery-staple", "4111-1111-1111-1111"
CHARGE: dict[str, Any] = {
    "type": "charge",
    "kwargs": {"card": CARD, "login": {"password": SECRET}, "note": "hi"},
}


def with_charge(app: Holdfast) -> Holdfast:
    @app.durable(name="charge")
    async def charge(card: str, login: dict[str, str], note: str) -> None:
        """Charge a card."""

    return app


@pytest.fixture
async def http(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOLDFAST_REDACT", "card")
    async with Holdfast(url) as app, asking(with_charge(app)) as http:
        yield http


async def failed(http: httpx.AsyncClient, wish: dict[str, Any], **error: str) -> dict[str, Any]:
    id = (await http.post("/v1/tasks", json={"max_tries": 1, **wish})).json()["id"]
    (task,) = await claimed(http, await registered(http, types=["charge", "unheard"]))
    end = {"outcome": "failed", "error": error}
    answer = await http.post(f"/v1/leases/{task['lease']}:settle", json=end)
    assert answer.json() == {"ended": "failed"}, answer.text
    found: dict[str, Any] = (await http.get(f"/v1/tasks/{id}/result")).json()["error"]
    return found


async def test_an_error_does_not_repeat_the_secrets_among_the_arguments(http: httpx.AsyncClient):
    said = f"no luck with {CARD} of {SECRET}, hi"
    found = await failed(http, CHARGE, type=f"Bad{SECRET}", message=said, traceback=f"at {said}")
    hidden = "no luck with [hidden] of [hidden], hi"
    assert found == {"type": "Bad[hidden]", "message": hidden, "traceback": f"at {hidden}"}


@pytest.mark.parametrize("unknown", [False, True])
async def test_nor_those_that_were_given_in_their_places(http: httpx.AsyncClient, unknown):
    """Where the server does not know the function, nor the names of its places, any may be one."""
    wish: dict[str, Any] = {"type": "charge", "args": [CARD, {"password": SECRET}, "plain"]}
    if unknown:
        wish |= {"type": "unheard", "allow_unknown": True}
    found = await failed(http, wish, message=f"{SECRET} {CARD} plain")
    assert found["message"] == f"[hidden] [hidden] {'[hidden]' if unknown else 'plain'}"


async def test_what_is_long_is_cut_after_its_secrets_are_gone(http: httpx.AsyncClient):
    """A secret that lies across the cut leaves no part behind."""
    for places in range(1, len(SECRET), 7):
        message = "m" * (3999 - places) + SECRET + "m" * 90_000
        traceback = "t" * 100_000 + SECRET + "t" * (12_000 - places)
        found = await failed(http, CHARGE, type="T" * 900, message=message, traceback=traceback)
        assert len(found["type"]) == 200
        assert len(found["message"]) == 4000
        assert len(found["traceback"]) <= 12_001
        for text in (found["message"], found["traceback"]):
            assert SECRET[:4] not in text
            assert SECRET[-4:] not in text


async def test_characters_that_take_many_bytes_still_fit(http: httpx.AsyncClient):
    found = await failed(http, CHARGE, message="\0" * 5000, traceback="\x01" * 150_000)
    assert found["message"].count("\0") == 0
    assert found["traceback"]


async def test_what_a_worker_reports_does_not_repeat_them_either(http: httpx.AsyncClient):
    id = (await http.post("/v1/tasks", json=CHARGE)).json()["id"]
    (task,) = await claimed(http, await registered(http, types=["charge"]))
    report = {"percent": 50, "message": f"charging {CARD}"}
    answer = await http.post(f"/v1/leases/{task['lease']}:progress", json=report)
    assert answer.status_code == 204
    assert (await http.get(f"/v1/tasks/{id}")).json()["progress_message"] == "charging [hidden]"


async def test_nor_what_has_no_name_here(http: httpx.AsyncClient):
    wish = {"type": "unheard", "args": [SECRET, 20301231, "hi"], "allow_unknown": True}
    id = (await http.post("/v1/tasks", json=wish)).json()["id"]
    (task,) = await claimed(http, await registered(http, types=["unheard"]))
    report = {"percent": 50, "message": f"hi, {SECRET} until 20301231"}
    answer = await http.post(f"/v1/leases/{task['lease']}:progress", json=report)
    assert answer.status_code == 204
    said = (await http.get(f"/v1/tasks/{id}")).json()["progress_message"]
    assert said == "hi, [hidden] until [hidden]"


async def test_sealed_arguments_are_opened_to_know_what_to_hide(url: str):
    ring = KeyRing.parse(f"one:{KeyRing.make()}")
    async with Holdfast(url, encryption=ring) as app, asking(with_charge(app)) as http:
        found = await failed(http, CHARGE, message=f"no luck with {SECRET}")
        assert found["message"] == "no luck with [hidden]"


@pytest.mark.parametrize("has_another_key", [False, True])
async def test_where_nobody_here_can_open_them_nothing_is_told(url: str, has_another_key: bool):
    """A worker that has the key itself may repeat what it opened."""
    theirs, ours = (KeyRing.parse(f"{name}:{KeyRing.make()}") for name in ("theirs", "ours"))
    async with Holdfast(url, encryption=theirs) as app:
        charge = with_charge(app).functions.find("charge")
        sealed = await app.dispatch(charge, **CHARGE["kwargs"])
    async with (
        Holdfast(url, encryption=ours if has_another_key else None) as app,
        asking(app) as http,
    ):
        (task,) = await claimed(http, await registered(http, types=["charge"]))
        lease, said = f"/v1/leases/{task['lease']}", f"no luck with {SECRET}"
        await http.post(f"{lease}:progress", json={"percent": 50, "message": said})
        error = {"type": "Bad", "message": said, "traceback": said}
        await http.post(f"{lease}:settle", json={"outcome": "failed", "error": error})
        view = (await http.get(f"/v1/tasks/{sealed.id}")).json()
        hidden = "[hidden: the arguments are sealed, and the API has no key to them]"
        assert (view["progress_message"], view["last_error"]) == (hidden, hidden)
        (attempt,) = (await http.get(f"/v1/tasks/{sealed.id}/attempts")).json()["data"]
        assert set(attempt["error"].values()) == {hidden}
