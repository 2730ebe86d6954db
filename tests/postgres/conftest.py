"""A store in a database of its own, and raw connections to it."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.stores.opening import open_store
from holdfast.stores.sql import SqlStore


@pytest.fixture
def url(postgres_current, fresh_database):
    return fresh_database(postgres_current)


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    store = await open_store(url)
    yield store
    await store.close()


@pytest.fixture
async def conn(url: str, store: SqlStore) -> AsyncIterator[asyncpg.Connection]:
    """A second connection, for what is under way while the store goes on."""
    conn = await asyncpg.connect(url)
    yield conn
    await conn.close()
