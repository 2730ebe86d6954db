"""A desk over each database, for everyone and for one tenant."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from holdfast.desk.local import LocalDesk

ACME = Caller(name="acme's key", tenant="acme")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/desk.db"
    return str(request.getfixturevalue("store_database"))


@pytest.fixture
async def app(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as app:

        @app.durable(name="pay", queue="money", tags=["billing"])
        async def pay(order: int, note: str = "") -> str:
            """Charge an order."""
            return f"paid {order}"

        @app.durable(name="fail")
        async def fail() -> None:
            raise RuntimeError("no luck")

        yield app


@pytest.fixture
async def desk(app: Holdfast) -> LocalDesk:
    return await app.desk()


@pytest.fixture
async def acme(app: Holdfast) -> LocalDesk:
    return await app.desk(ACME)
