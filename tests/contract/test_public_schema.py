"""The views for people also stand in `public`, where their names are free."""

import pytest

from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore
from tests.contract.acts import put_one
from tests.servers import ask

ONLY = "postgres"
VIEWS = {
    "active_leases",
    "dead_letters",
    "processing_jobs",
    "queue_load",
    "stale_leases",
    "tasks",
    "worker_utilization",
    "workers",
}


@pytest.fixture
def url(postgres_current, fresh_database):
    return fresh_database(postgres_current)


def _in_public(url: str) -> set[str]:
    found = ask(url, "select table_name from information_schema.tables where table_schema='public'")
    return {name for (name,) in found}


async def test_the_views_are_found_without_a_schema(url):
    store = SqlStore(PostgresDriver(url))
    await store.migrate()
    id = await put_one(store)
    await store.close()
    assert ask(url, "select id, status from tasks") == [(id, "pending")]
    assert _in_public(url) == VIEWS


async def test_names_that_are_taken_are_left_alone(url):
    ask(url, "create table tasks (mine text)")
    store = SqlStore(PostgresDriver(url))
    await store.migrate()
    await store.close()
    assert ask(url, "select mine from tasks") == []
    assert _in_public(url) == VIEWS
    assert ask(url, "select count(*) from holdfast.tasks") == [(0,)]


async def test_nothing_is_put_into_public_when_it_is_not_wanted(url):
    store = SqlStore(PostgresDriver(url, schema="mine", public_views=False))
    await store.migrate()
    await store.close()
    assert _in_public(url) == set()
    assert ask(url, "select count(*) from mine.tasks") == [(0,)]
