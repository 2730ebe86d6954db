"""Files of others: refused, and left exactly as they were, with nothing beside them."""

from pathlib import Path

import apsw
import pytest

from holdfast.errors import HoldfastError, NotAStore, StoreUnreachable
from holdfast.stores.opening import open_store
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.driver import SqliteDriver
from tests.contract.acts import put_one
from tests.sqlite.acts import peek


def _make(path: Path, sql: str) -> None:
    conn = apsw.Connection(str(path))
    conn.execute(sql).fetchall()
    conn.close()


def _all(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


FOREIGN = {
    "another program's": "pragma application_id = 0x47504B47; create table t (a)",
    "another program's, with a log": "pragma journal_mode = wal; pragma application_id = 7;"
    " create table t (a)",
    "tables named like ours": "create table task (a); create table other (a)",
    "a migration table": "create table migration (id, name); create table users (a)",
    "a view named like ours": "create table t (a); create view tasks as select a from t",
}


@pytest.mark.parametrize("sql", FOREIGN.values(), ids=FOREIGN)
async def test_a_foreign_database_is_refused_and_stays_as_it_was(tmp_path, sql):
    path = tmp_path / "foreign.db"
    _make(path, sql)
    before = _all(tmp_path)
    for migrate in (True, False):
        with pytest.raises(NotAStore, match="file of its own"):
            await open_store(f"sqlite:///{path}", migrate=migrate)
    assert _all(tmp_path) == before


async def test_what_stands_only_in_its_log_is_seen_too(tmp_path):
    path = tmp_path / "foreign.db"
    conn = apsw.Connection(str(path))
    conn.execute("pragma journal_mode = wal; pragma wal_autocheckpoint = 0").fetchall()
    conn.execute("pragma application_id = 7; create table t (a)").fetchall()
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="another program"):
        await open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {
        "foreign.db",
        "foreign.db-shm",
        "foreign.db-wal",
    }
    conn.close()


async def test_what_is_no_database_is_refused_and_stays_as_it_was(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"bread, milk, and a long list of other things\n" * 100)
    before = _all(tmp_path)
    with pytest.raises(NotAStore, match="not an SQLite database"):
        await open_store(f"sqlite:///{tmp_path}/notes.txt")
    assert _all(tmp_path) == before


async def test_a_folder_is_refused_and_nothing_is_made(tmp_path):
    (tmp_path / "folder").mkdir()
    for name, error in (("folder", NotAStore), ("missing/file.db", StoreUnreachable)):
        with pytest.raises(error):
            await open_store(f"sqlite:///{tmp_path}/{name}")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


async def test_a_file_with_tables_of_ones_own_becomes_a_store(tmp_path):
    path = tmp_path / "shop.db"
    _make(path, "create table bill (id integer); insert into bill values (7)")
    store = await open_store(f"sqlite:///{path}")
    await put_one(store)
    await store.close()
    driver = SqliteDriver(path)
    assert await peek(driver, "select id from bill") == [(7,)]
    assert await peek(driver, "select count(*) from task") == [(1,)]
    await driver.close()


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "what?.db", "a#b.db", "größe.db"])
async def test_any_name_will_do(tmp_path, name):
    for _ in range(2):
        driver = SqliteDriver(tmp_path / name)
        store = SqlStore(driver)
        await store.migrate()
        await put_one(store)
        await store.close()
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}.lock"}


async def test_a_store_that_others_write_is_opened(store, path):
    await put_one(store)
    for _ in range(3):
        other = await open_store(f"sqlite:///{path}")
        await put_one(other)
        await other.close()


async def test_every_refusal_is_an_error_of_ours(tmp_path):
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(HoldfastError):
        await open_store(f"sqlite:///{tmp_path}/damaged.db")
