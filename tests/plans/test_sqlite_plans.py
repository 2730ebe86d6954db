"""How SQLite runs every named statement: none reads a big table whole."""

import asyncio
import re
from collections.abc import Iterator
from importlib.resources import files

import apsw
import pytest

from holdfast.stores import queries
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver

STATEMENTS = queries.load(files("holdfast.stores.sqlite"))
_NAMED = re.compile(r"\b(?:from|join|update|into)\s+(task|ready|outcome)\b(?:\s+(?:as\s+)?(\w+))?")
_SCAN = re.compile(r"SCAN (\w+)(.*)")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = str(tmp_path_factory.mktemp("plans") / "plans.db")
    asyncio.run(migrate(path))
    connection = apsw.Connection(path)
    yield connection
    connection.close()


async def migrate(path: str) -> None:
    store = SqlStore(SqliteDriver(path))
    await store.migrate()
    await store.close()


def plan(database: apsw.Connection, name: str) -> list[str]:
    sql = STATEMENTS[name]
    unbound = dict.fromkeys(queries.parameters(sql))
    return [step for *_, step in database.execute(f"explain query plan {sql}", unbound)]


def scans(database: apsw.Connection, name: str) -> Iterator[str]:
    """The steps of a statement's plan that read a big table from its beginning."""
    big = {word for found in _NAMED.findall(STATEMENTS[name].lower()) for word in found if word}
    for step in plan(database, name):
        found = _SCAN.match(step)
        if found and found[1] in big:
            yield step


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_no_statement_reads_a_big_table_whole(database: apsw.Connection, name: str) -> None:
    assert list(scans(database, name)) == []


def test_keys_are_read_in_the_order_of_their_nudges_and_no_further(
    database: apsw.Connection,
) -> None:
    assert plan(database, "nudge.keys") == ["SEARCH n USING INDEX nudge_order (pool=?)"]


def test_signals_that_were_consumed_are_not_read_again(database: apsw.Connection) -> None:
    assert plan(database, "news.signals") == [
        "SEARCH s USING COVERING INDEX signal_of (id=? AND consumed=? AND name=?)"
    ]


def test_one_users_tasks_are_found_by_their_own_index(database: apsw.Connection) -> None:
    assert plan(database, "list.of_user") == [
        "SEARCH t USING COVERING INDEX task_user (user_id=? AND lane=? AND id<?)"
    ]


def test_a_scan_would_be_seen(database: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATEMENTS, "bad", "select t.id from task t where t.payload = :payload")
    assert list(scans(database, "bad")) == ["SCAN t"]
