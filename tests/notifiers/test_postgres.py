"""What is particular about hints through PostgreSQL."""

import asyncio
from contextlib import ExitStack

import asyncpg
import psycopg
import pytest

from holdfast.errors import InvalidInput
from holdfast.notifier import Hint
from holdfast.notifiers.postgres import PostgresNotifier
from tests.notifiers.keepers import SECRET, Ears, until
from tests.servers import GivenPostgres, ask, with_database

WORK = Hint("work", "mail")


@pytest.fixture
def pooled(pgbouncer, fresh_database):
    return fresh_database(pgbouncer)


@pytest.fixture
def direct(pooled, pgbouncer):
    return with_database(pgbouncer.behind.url, pooled.rpartition("/")[2])


@pytest.fixture
def url(postgres_current, fresh_database):
    return fresh_database(postgres_current)


async def test_behind_a_pooler_it_says_once_that_it_does_not_hear(pooled, caplog):
    notifier = PostgresNotifier(pooled.replace("postgres@", f"postgres:{SECRET}@"))
    await notifier.listen(Ears())
    await notifier.listen(Ears())
    await notifier.close()
    assert len(caplog.messages) == 1
    assert "listen_url" in caplog.text
    assert "polling" in caplog.text
    assert SECRET not in caplog.text


async def test_with_a_listen_url_hints_through_a_pooler_are_heard(pooled, direct, caplog):
    """Each goes through another of the pooler's connections: the others are taken."""
    notifier, ears = PostgresNotifier(pooled, listen_url=direct), Ears()
    await notifier.listen(ears)
    with ExitStack() as others:
        for i in range(5):
            notifier.tell([Hint("work", f"name{i}")])
            await ears.hear(Hint("work", f"name{i}"))
            other = others.enter_context(psycopg.connect(pooled))
            other.execute("select 1")  # in a transaction, which stays open
    await notifier.close()
    assert caplog.messages == []


async def test_a_hint_leaves_no_setting_behind(pooled, direct):
    notifier, ears = PostgresNotifier(pooled, listen_url=direct), Ears()
    await notifier.listen(ears)
    notifier.tell([WORK])
    await ears.hear(WORK)
    await notifier.close()
    assert ask(pooled, "show synchronous_commit") == [("on",)]


async def test_a_hint_waits_for_no_disk_and_no_standby(postgres_current, url):
    """Other commits wait here, for a standby that does not exist."""
    if isinstance(postgres_current, GivenPostgres):
        pytest.skip("the settings of a given server are left alone")
    notifier, ears, conn = PostgresNotifier(url), Ears(), await asyncpg.connect(url)
    await notifier.listen(ears)
    _set_standby(url, "nobody")
    try:
        waiting = asyncio.create_task(_write_until_it_waits(conn))
        await until(lambda: ask(url, "select 1 from pg_stat_activity where wait_event = 'SyncRep'"))
        notifier.tell([WORK])
        await ears.hear(WORK)
        assert not waiting.done()
    finally:
        _set_standby(url, "")
        waiting.cancel()
        await asyncio.wait([waiting])
        await conn.close()
        await notifier.close()


def _set_standby(url: str, name: str) -> None:
    ask(url, f"alter system set synchronous_standby_names = '{name}'")
    ask(url, "select pg_reload_conf()")


async def _write_until_it_waits(conn: asyncpg.Connection) -> None:
    """The server takes a moment to heed the setting."""
    while True:
        await conn.execute("create table written ()")
        await conn.execute("drop table written")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@x@host/db",
        f"postgresql://me:{SECRET}/x@host/db",
        f"postgresql://me:{SECRET}#x@host/db",
        f"mysql://me:{SECRET}@host/db",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_quoted(url):
    with pytest.raises(InvalidInput, match="percent-encode") as refused:
        PostgresNotifier(url)
    assert SECRET not in str(refused.value)
