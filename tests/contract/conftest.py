"""One store per keeper of the promise; after every test nothing may be stuck."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.stores.sql import SqlStore
from tests import servers
from tests.contract.astray import astray
from tests.contract.keepers import Dump, Keeper, PostgresKeeper, SqliteKeeper
from tests.servers import AnyPostgres

HERE = Path(__file__).parent
DIALECTS = {
    "sqlite-memory": "sqlite",
    "sqlite-file": "sqlite",
    "postgres": "postgres",
    "postgres-15": "postgres",
    "pgbouncer": "postgres",
    "serializable": "postgres",
    "serializable-pgbouncer": "postgres",
}
SERVERS = {
    "postgres": "postgres_current",
    "postgres-15": "postgres_15",
    "pgbouncer": "pgbouncer",
    "serializable": "postgres_current",
    "serializable-pgbouncer": "pgbouncer",
}
# Both of its halves are kept in turn by `make test`.
KEEPERS = [
    pytest.param(name, marks=[pytest.mark.long] if name == "serializable-pgbouncer" else [])
    for name in DIALECTS
]
# What depends on others' commits being seen; here the database's default would have it otherwise.
SERIALIZABLE = ("claim", "contended", "isolation", "limits", "recover", "settle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One event loop for all: connections and what servers remember of them are kept.

    A file that says `ONLY = "postgres"` is about what the other database does not have.
    """
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    items[:] = [item for item in items if _concerns(item)]


def _concerns(item: pytest.Item) -> bool:
    only = getattr(getattr(item, "module", None), "ONLY", None)
    given = getattr(item, "callspec", None)
    if HERE not in item.path.parents or given is None or "keeper" not in given.params:
        return True
    keeper = given.params["keeper"]
    if (
        keeper.startswith("serializable")
        and item.path.stem.removeprefix("test_") not in SERIALIZABLE
    ):
        return False
    return only is None or bool(DIALECTS[keeper] == only)


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=KEEPERS)
async def keeper(request: pytest.FixtureRequest) -> AsyncIterator[Keeper]:
    """A database that makes the promise."""
    if DIALECTS[request.param] == "sqlite":
        folder = request.getfixturevalue("tmp_path_factory").mktemp("contract")
        path = folder / "holdfast.db" if request.param == "sqlite-file" else None
        async with aclosing(await SqliteKeeper.open(path)) as kept:
            yield kept
    else:
        server = request.getfixturevalue(SERVERS[request.param])
        level = "serializable" if "serializable" in request.param else "read committed"
        with _database(server, level) as (url, direct):
            async with aclosing(await PostgresKeeper.open(url, direct)) as kept:
                yield kept


@contextmanager
def _database(server: AnyPostgres, level: str) -> Iterator[tuple[str, str]]:
    with servers.fresh_database(server) as url:
        name = url.rpartition("/")[2]
        direct = servers.with_database(server.admin_url, name)
        # The contract is about what is written, not about what survives a power cut.
        servers.ask(direct, f"alter database {name} set synchronous_commit = off")
        servers.ask(direct, f"alter database {name} set default_transaction_isolation = '{level}'")
        yield url, direct


@pytest_asyncio.fixture(loop_scope="session")
async def store(keeper: Keeper) -> AsyncIterator[SqlStore]:
    """An empty store. Afterwards every task must have ended or stand in exactly one place."""
    await keeper.empty()
    yield keeper.store()
    assert await astray(keeper.peek) == []


class MovableClock:
    """The database's clock, which stands still until it is moved."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def advance(self, seconds: float) -> None:
        await self._keeper.advance(seconds)


@pytest.fixture
def clock(keeper: Keeper, store: SqlStore) -> MovableClock:
    return MovableClock(keeper)


@pytest.fixture
def dump(keeper: Keeper, store: SqlStore) -> Callable[[], Awaitable[Dump]]:
    """All rows of all tables."""
    return keeper.dump


@pytest.fixture
def peek(keeper: Keeper, store: SqlStore) -> Callable[[str], Awaitable[list[tuple[Any, ...]]]]:
    """Any SQL on the store's database."""
    return keeper.peek


@pytest_asyncio.fixture(loop_scope="session")
async def bill(keeper: Keeper, store: SqlStore) -> AsyncIterator[str]:
    """A table of the caller's own, by its full name."""
    name = f"{keeper.schema}.bill" if isinstance(keeper, PostgresKeeper) else "bill"
    await keeper.peek(f"create table {name} (id integer)")
    yield name
    await keeper.peek(f"drop table {name}")
