"""Every keeper, fresh for each test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.notifier import Notifier
from tests.notifiers.keepers import (
    DatagramKeeper,
    Ears,
    Keeper,
    LocalKeeper,
    PostgresKeeper,
    RedisKeeper,
    SeveralKeeper,
)
from tests.servers import GivenPostgres, Postgres, fresh_database

Open = Callable[..., Awaitable[tuple[Notifier, Ears]]]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """pytest's own are too deep for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def database(postgres_current: Postgres | GivenPostgres) -> Iterator[str]:
    """One is enough: each test has schemas of its own."""
    with fresh_database(postgres_current) as url:
        yield url


@pytest.fixture
def keeper(request: pytest.FixtureRequest) -> Keeper | LocalKeeper | DatagramKeeper:
    name = uuid4().hex
    match request.param:
        case "local":
            return LocalKeeper(name)
        case "postgres":
            return PostgresKeeper(request.getfixturevalue("database"), name)
        case "redis":
            return RedisKeeper(request.getfixturevalue("valkey"), name)
        case "several":
            valkey, url = request.getfixturevalue("valkey"), request.getfixturevalue("database")
            return SeveralKeeper(RedisKeeper(valkey, name), PostgresKeeper(url, name))
        case "datagram":
            return DatagramKeeper(request.getfixturevalue("short_folder"))
        case other:
            raise AssertionError(other)


@asynccontextmanager
async def listeners(keeper: Keeper) -> AsyncIterator[Open]:
    """`await open(place, ...)` is a notifier that listens, and what it heard."""
    opened: list[Notifier] = []

    async def open(place: str = "here", **options: float) -> tuple[Notifier, Ears]:
        notifier, ears = keeper.notifier(place, **options), Ears()
        opened.append(notifier)
        async with asyncio.timeout(60):
            await notifier.listen(ears)
        return notifier, ears

    try:
        yield open
    finally:
        for notifier in opened:
            await notifier.close()


@pytest.fixture
async def open(keeper: Keeper) -> AsyncIterator[Open]:
    async with listeners(keeper) as open:
        yield open
