"""Workers in this process, on each database in turn."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.work.bench import Bench


@pytest.fixture
def sqlite_url() -> Iterator[str]:
    """In a short folder: sockets for hints lie beside the file."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        yield f"sqlite:///{Path(folder) / 'holdfast.db'}"


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("store_database"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def bench(url: str) -> AsyncIterator[Bench]:
    async with Bench(url) as bench:
        yield bench


@pytest.fixture
async def postgres_bench(postgres_url: str) -> AsyncIterator[Bench]:
    async with Bench(postgres_url) as bench:
        yield bench


@pytest.fixture(autouse=True)
async def nothing_is_forgotten(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """No error that nobody looked at, and nothing that still runs."""
    yield
    forgotten = [r for r in caplog.records if r.name == "asyncio" and r.levelno >= logging.ERROR]
    assert not forgotten, forgotten[0].getMessage()
    await asyncio.sleep(0)
