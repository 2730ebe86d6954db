"""The servers of the test run are real, ours, and gone afterwards."""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable

import asyncpg
import psycopg
import pytest

from tests import servers
from tests.servers import AnyPostgres, GivenPostgres, PgBouncer, Postgres, ask

FreshDatabase = Callable[[AnyPostgres], str]


def major(url: str) -> int:
    return int(ask(url, "show server_version_num")[0][0]) // 10000


def test_the_current_postgres_is_the_newest_major(postgres_current: Postgres | GivenPostgres):
    if isinstance(postgres_current, GivenPostgres):
        pytest.skip("a given server has the version that it has")
    assert major(postgres_current.url) == 18


def test_the_older_postgres_is_15(postgres_15: Postgres):
    assert major(postgres_15.url) == 15


@pytest.mark.parametrize("name", ["postgres_current", "postgres_15"])
def test_postgres_writes_durably_as_in_production(name: str, request: pytest.FixtureRequest):
    server = request.getfixturevalue(name)
    assert ask(server.url, "show fsync") == [("on",)]
    assert ask(server.url, "show synchronous_commit") == [("on",)]


async def test_asyncpg_talks_to_a_fresh_database(
    postgres_current: Postgres | GivenPostgres, fresh_database: FreshDatabase
):
    connection = await asyncpg.connect(fresh_database(postgres_current))
    try:
        assert (
            await connection.fetchval("select count(*) from pg_class where relname = 'task'") == 0
        )
    finally:
        await connection.close()


def test_a_fresh_database_is_dropped_afterwards(postgres_15: Postgres):
    with servers.fresh_database(postgres_15) as url:
        assert ask(url, "select 1") == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        ask(url, "select 1")


def test_pgbouncer_lends_a_connection_for_one_transaction_only(
    pgbouncer: PgBouncer, fresh_database: FreshDatabase
):
    url = fresh_database(pgbouncer)
    clients = [psycopg.connect(url) for _ in range(3 * pgbouncer.pool_size)]
    try:
        backends = set()
        for client in clients:
            backends |= set(client.execute("select pg_backend_pid()").fetchall())
            client.commit()
        assert 1 <= len(backends) <= pgbouncer.pool_size < len(clients)
    finally:
        for client in clients:
            client.close()


def test_a_stopped_server_leaves_nothing(pgbouncer: PgBouncer):
    with PgBouncer(pgbouncer.behind) as another:
        folder, pid = another.folder, another.pid
        assert another.port != pgbouncer.port
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_is_not_ours_is_refused(postgres_15: Postgres, monkeypatch):
    """Somebody has the first port; the second is free."""
    taken, free = postgres_15.port, servers.free_port()
    ports = iter([taken, free])
    monkeypatch.setattr(servers, "free_port", lambda: next(ports))
    with Postgres.debian() as another:
        assert another.port == free
        assert another.identity() != postgres_15.identity()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of that")
def test_a_server_does_not_outlive_tests_that_were_killed(postgres_15: Postgres):
    script = (
        "from tests.servers import Postgres\n"
        "with Postgres.debian() as server:\n"
        "    print(server.pid, server.folder, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        pid, folder = tests.stdout.readline().split()
        server = os.pidfd_open(int(pid))
        tests.kill()
    try:
        ended, _, _ = select.select([server], [], [], servers.STOPS_WITHIN)
        assert ended, "the server still runs"
    finally:
        os.close(server)
        shutil.rmtree(folder, ignore_errors=True)  # its children may still write
