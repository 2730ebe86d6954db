"""What comes of a request that is sent again, since its answer was lost."""

from uuid import UUID

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from tests.http.conftest import SomeKeys, asking, asking_api

PAY = {"type": "pay", "kwargs": {"order": 7}}
ONCE = {"Idempotency-Key": "k"}


async def signals_of(app: Holdfast, id: str) -> list[bytes]:
    store = (await app.home.client()).store
    return [signal.payload for signal in (await store.news(UUID(id), [], signals=["yes"])).signals]


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of what is remembered of the request."""

    async def forget(client, request, caller, body, act):
        return await act()

    monkeypatch.setattr("holdfast.http.endpoint.once", forget)


async def test_a_signal_whose_answer_was_lost_is_sent_once(app: Holdfast, forgetful: None):
    keys = SomeKeys(one=Caller(name="one"), two=Caller(name="two"))
    api = app.asgi(keys=[keys])
    async with asking_api(api, "one") as http, asking_api(api, "two") as other:
        id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
        path = f"/v1/flows/{id}/signals/yes"

        async def send(http: httpx.AsyncClient, payload: int, **headers: str) -> None:
            answer = await http.post(path, json={"payload": payload}, headers=headers)
            assert answer.json() == {"sent": True}

        for _ in range(2):
            await send(http, 1, **ONCE)
        assert await signals_of(app, id) == [b"1"]
        await send(http, 2, **ONCE)  # what else it would be, nobody would remember
        await send(http, 1, **{"Idempotency-Key": "other"})
        await send(other, 1, **ONCE)
        for _ in range(2):
            await send(http, 1)
        assert await signals_of(app, id) == [b"1", b"2", b"1", b"1", b"1", b"1"]


async def test_an_answer_that_is_repeated_has_the_headers_of_the_first(app: Holdfast):
    async with asking(app) as http:
        await http.post("/v1/tasks", json=PAY)
        wish = {"action": "cancel", "filter": {"status": "pending", "queue": "money"}}
        first = await http.post("/v1/operations", json=wish, headers=ONCE)
        again = await http.post("/v1/operations", json=wish, headers=ONCE)
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["content-type"] == first.headers["content-type"]
        assert again.headers["idempotent-replayed"] == "true"
        assert (await http.get(again.headers["location"])).json()["id"] == first.json()["id"]


async def test_a_refusal_that_is_repeated_still_looks_like_one(app: Holdfast):
    async with asking(app) as http:
        wrong = {"tasks": [{"type": "nobody"}]}
        first = await http.post("/v1/tasks/batch", json=wrong, headers=ONCE)
        again = await http.post("/v1/tasks/batch", json=wrong, headers=ONCE)
        assert again.headers["content-type"] == "application/problem+json"
        assert (again.status_code, again.json()) == (first.status_code, first.json())
