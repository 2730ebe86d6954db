"""`holdfast migrate`: where a schema stands, up, and as SQL."""

import asyncio
import json

import apsw
import psycopg

from holdfast.stores.opening import open_store
from tests.cli.scene import url_of
from tests.cli.shell import Shell


def test_a_schema_is_made_and_says_where_it_stands(either: Shell):
    version = either.says("migrate", "up").removeprefix("schema version ")
    rows = json.loads(either.says("migrate", "status", "-o", "json"))
    assert [row["state"] for row in rows] == ["applied"] * int(version)
    assert rows[-1]["version"] == int(version)
    assert either.says("migrate", "up") == f"schema version {version}"
    assert "nothing is to be done" in either.run("migrate", "sql").stderr


def test_sql_that_others_run_makes_a_store_that_fits(either: Shell):
    url = url_of(either)
    sql = either.says("migrate", "sql", "--all", "--store", url)
    if url.startswith("sqlite"):
        conn = apsw.Connection(str(either.folder / "holdfast.db"))
        conn.execute(sql).fetchall()
        conn.close()
    else:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(sql.encode())
    either.says("migrate", "status", "--check")
    assert "nothing is to be done" in either.run("migrate", "sql").stderr
    store = asyncio.run(opened(url))
    assert store is not None


async def opened(url: str) -> int:
    store = await open_store(url, migrate=False)
    try:
        return len(await store.queue_loads())
    finally:
        await store.close()


def test_a_schema_of_another_name(shell: Shell, fresh_database, postgres_current):
    url = f"{fresh_database(postgres_current)}?schema=elsewhere"
    sql = shell.says("migrate", "sql", "--all", "--store", url)
    assert 'create schema if not exists "elsewhere"' in sql
    assert {row["state"] for row in status(shell, url)} == {"pending"}
    shell.says("migrate", "up", "--store", url)
    assert {row["state"] for row in status(shell, url)} == {"applied"}


def status(shell: Shell, url: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(
        shell.says("migrate", "status", "-o", "json", "--store", url)
    )
    return found


def test_a_schema_that_does_not_fit_is_told(shell: Shell):
    assert "there is no store" in shell.fails(4, "migrate", "status")
    assert not shell.has("holdfast.db")
    shell.says("migrate", "up")
    alter(shell, "delete from migration where version = (select max(version) from migration)")
    assert "migrate up" in shell.fails(9, "migrate", "status", "--check")
    assert "migrate up" in shell.fails(1, "tasks", "ls")
    alter(shell, "insert into migration values (9000, 'later', 9000, 0)")
    assert "upgrade holdfast" in shell.fails(9, "migrate", "status", "--check")
    assert "newer" in shell.says("migrate", "status")
    assert "HF102" in shell.fails(9, "doctor")


def alter(shell: Shell, sql: str) -> None:
    conn = apsw.Connection(str(shell.folder / "holdfast.db"))
    conn.execute(sql).fetchall()
    conn.close()
