"""The API over each database, asked in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller

KEY = "bootstrap-key-of-the-tests"


class SomeKeys:
    """Keys as a store would keep them."""

    def __init__(self, **callers: Caller) -> None:
        self._callers = callers

    async def caller(self, key: str, *, sparing: bool = False) -> Caller | None:
        return self._callers.get(key)

    async def any(self) -> bool:
        return bool(self._callers)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/http.db"
    return str(request.getfixturevalue("store_database"))


@pytest.fixture
async def app(url: str) -> AsyncIterator[Holdfast]:
    async with with_functions(url) as app:
        yield app


@pytest.fixture
async def local(tmp_path: Any) -> AsyncIterator[Holdfast]:
    """Where the database does not matter."""
    async with with_functions(f"sqlite:///{tmp_path}/local.db") as app:
        yield app


@asynccontextmanager
async def with_functions(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as app:

        @app.durable(name="pay", queue="money", tags=["billing"])
        async def pay(order: int, note: str = "") -> str:
            """Charge an order."""
            return f"paid {order}"

        @app.durable(name="fail")
        async def fail() -> None:
            raise RuntimeError("no luck")

        yield app


@asynccontextmanager
async def asking(
    app: Holdfast, key: str | None = None, *, client: str = "127.0.0.1", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a new API of this app."""
    async with asking_api(app.asgi(**options), key, client=client) as http:
        yield http


@asynccontextmanager
async def asking_api(
    api: Any, key: str | None = None, *, client: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(api, client=(client, 50_000))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost:8000", headers=headers
    ) as http:
        yield http


@pytest.fixture
async def http(app: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(app) as http:
        yield http


@pytest.fixture
async def here(local: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(local) as http:
        yield http


def code(answer: httpx.Response) -> str:
    """Of a problem, which must look like one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:holdfast:problem:{body['code']}"
    assert body["title"]
    assert body["detail"]
    found: str = body["code"]
    return found
