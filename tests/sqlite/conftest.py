"""A store in a file, on its threads, with a clock that is moved by hand."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.clock import ManualClock
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver
from tests.contract.astray import astray
from tests.sqlite.acts import peek


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest_asyncio.fixture
async def driver(path: Path, clock: ManualClock) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(path, clock=clock, synchronous="normal", timeout=30.0)
    await driver.migrate()
    yield driver
    await driver.close()


@pytest_asyncio.fixture
async def store(driver: SqliteDriver) -> AsyncIterator[SqlStore]:
    """Afterwards every task has ended or stands in exactly one place."""
    yield SqlStore(driver)
    assert await astray(lambda sql: peek(driver, sql)) == []
