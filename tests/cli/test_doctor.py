"""`holdfast doctor`: each fault is planted, found and named with its fix."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.answers import WorkerRecord
from holdfast.cli.doctor.fleet import p95
from holdfast.cli.doctor.inside import held_rows
from holdfast.stores.opening import open_store
from holdfast.stores.sqlite import opening
from tests.cli.scene import GONE, WEB, url_of
from tests.cli.shell import Shell
from tests.contract.acts import DONE, claim, claim_one, finish, put, put_one

Plant = Callable[[Any], Awaitable[Any]]


def plant(shell: Shell, act: Plant) -> None:
    async def planted() -> None:
        store = await open_store(url_of(shell))
        try:
            await act(store)
        finally:
            await store.close()

    asyncio.run(planted())


def visit(shell: Shell, *args: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and what was found by its code."""
    done = shell.run("doctor", "-o", "json", *args)
    return done.returncode, {one["code"]: one for one in json.loads(done.stdout)}


async def nothing(store: Any) -> None:
    """A store, and no fault."""


def test_a_healthy_store_is_called_so(either: Shell):
    plant(either, nothing)
    code, found = visit(either)
    assert code == 0
    assert {one["status"] for one in found.values()} <= {"ok", "skipped"}
    lines = either.says("doctor").splitlines()
    assert lines[0] == "code\t\tcheck\tfound\twhat to do"
    assert lines[1].startswith("HF101\tok\tstore\tanswers in")


def test_no_store_is_a_fault_and_none_is_made(shell: Shell):
    code, found = visit(shell)
    assert (code, found["HF101"]["status"]) == (9, "fail")
    assert found["HF105"]["status"] == "skipped"
    assert not shell.has("holdfast.db")
    code, found = visit(shell, "--store", "postgresql://nobody@127.0.0.1:1/none")
    assert (code, found["HF101"]["status"]) == (9, "fail")


def test_an_empty_database_needs_a_schema(shell: Shell, fresh_database, postgres_current):
    code, found = visit(shell, "--store", fresh_database(postgres_current))
    assert code == 9
    assert found["HF102"]["fix"] == "holdfast migrate up"
    assert found["HF103"]["status"] == "skipped"


def test_a_queue_without_workers_is_found(either: Shell):
    async def act(store: Any) -> None:
        await store.register(WEB)
        await put_one(store, "shop:charge", queue="lonely")
        await put_one(store, "shop:charge", queue="mail")

    plant(either, act)
    code, found = visit(either)
    assert (code, found["HF105"]["status"]) == (9, "fail")
    assert found["HF105"]["message"] == "no live worker serves lonely (1 due)"
    assert "--queues lonely" in found["HF105"]["fix"]
    either.says("queues", "pause", "lonely")
    assert visit(either)[1]["HF105"]["status"] == "ok"


def test_due_tasks_that_no_worker_takes_are_found(either: Shell):
    async def act(store: Any) -> None:
        await store.register(WEB)
        await put_one(store, "shop:charge")
        await put(store, 2, "shop:typo")
        await put_one(store, "shop:charge", requires=("gpu",))

    plant(either, act)
    code, found = visit(either)
    assert (code, found["HF105"]["status"]) == (9, "fail")
    for part in ("in queue default 2 wait in vain", "'shop:typo'", "1 waits in vain", "all of gpu"):
        assert part in found["HF105"]["message"]
    assert "whose app imports it" in found["HF105"]["fix"]
    told = either.says("queues", "why", "default")
    assert "2 wait in vain: no live worker knows the type 'shop:typo'" in told
    assert "nothing holds it back" not in told


def test_a_queue_that_only_tenants_workers_serve_is_found(either: Shell):
    async def act(store: Any) -> None:
        await store.register(msgspec.structs.replace(WEB, tenant="acme", queues=()))
        await put_one(store, "t", queue="lonely")

    plant(either, act)
    _, found = visit(either)
    assert found["HF105"]["status"] == "warn"
    assert found["HF105"]["message"] == "only workers of tenants serve lonely (1 due)"


def test_a_tenants_worker_does_not_hide_a_silent_one_of_its_name(either: Shell):
    async def act(store: Any) -> None:
        await store.register(GONE)
        await put_one(store, "t")
        await claim_one(store, worker=GONE.id)
        await store.mark_stale(timedelta(0))
        await store.register(msgspec.structs.replace(GONE, id=77, tenant="acme"))

    plant(either, act)
    assert visit(either)[1]["HF106"]["status"] == "fail"


def test_a_silent_worker_that_holds_leases_is_found(either: Shell):
    async def act(store: Any) -> None:
        await store.register(GONE)
        await put_one(store, "t")
        await claim_one(store, worker=GONE.id)
        await store.mark_stale(timedelta(0))

    plant(either, act)
    code, found = visit(either)
    assert (code, found["HF106"]["status"]) == (9, "fail")
    assert "gone:2" in found["HF106"]["message"]
    assert found["HF107"]["status"] == "ok"


def test_leases_that_nobody_takes_back_are_found(shell: Shell, fresh_database, postgres_current):
    url = fresh_database(postgres_current)
    shell.environ["HOLDFAST_STORE"] = url

    async def act(store: Any) -> None:
        await store.register(WEB)
        await put_one(store, "t")
        await claim_one(store, worker=WEB.id)

    plant(shell, act)
    with psycopg.connect(url) as conn:
        conn.execute("update holdfast.lease set lease_timeout = now() - interval '2 minutes'")
    code, found = visit(shell)
    assert (code, found["HF107"]["status"]) == (9, "fail")
    assert "holdfast recover" in found["HF107"]["fix"]
    shell.says("recover")
    assert visit(shell)[1]["HF107"]["status"] == "ok"


def test_a_clock_that_is_wrong_is_found(shell: Shell, fresh_database, postgres_current):
    url = fresh_database(postgres_current)
    shell.environ["HOLDFAST_STORE"] = url
    plant(shell, nothing)
    with psycopg.connect(url) as conn:
        conn.execute(
            "create or replace function holdfast.clock() returns timestamptz language sql "
            "as $$ select clock_timestamp() - interval '8 seconds' $$"
        )
    code, found = visit(shell)
    assert (code, found["HF103"]["status"]) == (9, "fail")
    assert re.search(r"this host is [78]\.\ds ahead of the store", found["HF103"]["message"])


def test_work_that_is_longer_than_its_lease_is_warned_of(either: Shell):
    async def act(store: Any) -> None:
        await store.register(WEB)
        await put(store, 20, "shop:slow")
        claimed = await claim(store, 20, worker=WEB.id)
        await asyncio.sleep(0.05)  # how long the work takes
        await finish(store, claimed, DONE)

    plant(either, act)
    code, found = visit(either, "--lease", "0.04")
    assert (code, found["HF104"]["status"]) == (0, "warn")
    assert "shop:slow" in found["HF104"]["message"]
    assert visit(either)[1]["HF104"]["status"] == "ok"

    async def with_a_short_lease(store: Any) -> None:
        await store.register(msgspec.structs.replace(WEB, id=9, types=("shop:slow",), lease=0.04))

    plant(either, with_a_short_lease)
    assert "lease 40 ms" in visit(either)[1]["HF104"]["message"]


def test_a_blocked_worker_is_warned_of(either: Shell):
    blocked = WorkerRecord(id=7, name="stuck:7", status="blocked", loop_lag=12.0)

    async def act(store: Any) -> None:
        await store.register(blocked)
        await store.beat(blocked)

    plant(either, act)
    code, found = visit(either)
    assert (code, found["HF108"]["status"]) == (0, "warn")
    assert "stuck:7 (blocked, lag 12s)" in found["HF108"]["message"]
    assert "isolation='process'" in found["HF108"]["fix"]


def test_hints_that_a_pooler_swallows_are_warned_of(shell: Shell, fresh_database, pgbouncer):
    shell.environ["HOLDFAST_STORE"] = fresh_database(pgbouncer)
    plant(shell, nothing)
    code, found = visit(shell)
    assert (code, found["HF109"]["status"]) == (0, "warn")
    assert "listen_url" in found["HF109"]["fix"]


def test_an_old_transaction_is_found(shell: Shell, fresh_database, postgres_current):
    url = fresh_database(postgres_current)
    shell.environ["HOLDFAST_STORE"] = url
    plant(shell, nothing)
    assert visit(shell)[1]["HF201"]["status"] == "ok"
    with psycopg.connect(url) as conn:
        conn.execute("set transaction isolation level repeatable read")
        (pid,) = conn.execute("select pg_backend_pid()").fetchone() or (0,)
        code, found = visit(shell, "--old-transaction", "1ms")
        assert (code, found["HF201"]["status"]) == (9, "fail")
        assert f"pg_terminate_backend({pid})" in found["HF201"]["fix"]


def test_an_unused_replication_slot_is_found(shell: Shell, fresh_database, postgres_current):
    url = fresh_database(postgres_current)
    shell.environ["HOLDFAST_STORE"] = url
    plant(shell, nothing)
    if show(url, "wal_level") != "logical":
        assert visit(shell)[1]["HF202"]["status"] == "ok"
        return
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("select pg_create_logical_replication_slot('forgotten', 'pgoutput')")
        try:
            code, found = visit(shell)
        finally:
            conn.execute("select pg_drop_replication_slot('forgotten')")
    assert (code, found["HF202"]["status"]) == (9, "fail")


def test_what_keeps_dead_rows_is_named_with_the_way_to_end_it():
    assert held_rows([]).status == "ok"
    found = held_rows([("prepared transaction", "tx1"), ("replication slot", "s1")])
    assert found.status == "fail"
    assert "replication slot 's1'" in found.message
    assert found.fix == "end it: rollback prepared 'tx1';"
    assert "pg_drop_replication_slot('s1')" in held_rows([("replication slot", "s1")]).fix


def show(url: str, setting: str) -> str:
    with psycopg.connect(url) as conn:
        (value,) = conn.execute(f"show {setting}").fetchone() or ("",)
        return str(value)


def test_dead_rows_that_pile_up_are_warned_of(shell: Shell, fresh_database, postgres_current):
    url = fresh_database(postgres_current)
    shell.environ["HOLDFAST_STORE"] = url
    plant(shell, nothing)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("alter table holdfast.freed set (autovacuum_enabled = false)")
        conn.execute("insert into holdfast.freed select 1, 1 from generate_series(1, 60000)")
        conn.execute("delete from holdfast.freed")
        conn.execute("select pg_stat_force_next_flush()")
        conn.execute("select 1")
    code, found = visit(shell)
    assert (code, found["HF203"]["status"]) == (0, "warn")
    assert "vacuum (analyze) holdfast.freed" in found["HF203"]["fix"]


def test_a_file_on_a_network_file_system_is_found(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    """Any file system is one where ours is called so."""
    from click.testing import CliRunner

    from holdfast.cli.main import main

    plant(shell, nothing)
    kind = opening._file_system(shell.folder)
    monkeypatch.setattr(opening, "_NETWORK", {kind})
    monkeypatch.setenv("HOLDFAST_STORE", url_of(shell))
    monkeypatch.setenv("HOLDFAST_AUTO_MIGRATE", "1")  # to be set back: the command sets it
    done = CliRunner().invoke(main, ["doctor", "-o", "json"])
    assert done.exit_code == 9
    (found,) = [one for one in json.loads(done.stdout) if one["code"] == "HF301"]
    assert found["status"] == "fail"
    assert "PostgreSQL" in found["fix"]


def test_the_length_that_most_stay_within():
    assert p95([float(n) for n in range(1, 101)]) == 96
    assert p95([3.0]) == 3.0
