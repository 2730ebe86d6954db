"""An app with a worker beside it, on both databases."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import asyncpg
import pytest

from holdfast import Holdfast
from tests.app import shop as shops
from tests.servers import fresh_database


class Serving(Protocol):
    def __call__(self, **options: Any) -> AbstractAsyncContextManager[Holdfast]: ...


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    return str(request.getfixturevalue("store_database"))


@pytest.fixture
def serving(url: str) -> Serving:
    """`async with serving(queues=[...]) as app`: its worker is ready inside the block."""

    @asynccontextmanager
    async def serve(**options: Any) -> AsyncIterator[Holdfast]:
        options = {"lease_duration": "1m", "poll_interval": 0.02, "drain_timeout": "2s", **options}
        async with Holdfast.bootstrap(url, serve=True, **options) as app:
            yield app

    return serve


@pytest.fixture
async def shop(postgres_current: Any) -> AsyncIterator[asyncpg.Connection]:
    with fresh_database(postgres_current) as url:
        shops.urls.append(url)
        conn = await asyncpg.connect(url)
        await conn.execute("create table shop (number int)")
        yield conn
        await conn.close()


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that happens elsewhere."""
    async with asyncio.timeout(60):
        while not await seen():
            await asyncio.sleep(0.01)
