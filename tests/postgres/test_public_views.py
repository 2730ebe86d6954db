"""The views in `public` never hold up a migration, and are as new as it."""

import asyncpg
import pytest

from holdfast.errors import StoreError
from holdfast.stores import migrations
from holdfast.stores.migrations import Migration
from holdfast.stores.opening import open_store
from tests.servers import ask

COLUMNS = """
select column_name from information_schema.columns
where table_schema = 'public' and table_name = 'workers'
"""
NEW_VIEW = """
drop view holdfast.workers;
create view holdfast.workers as select w.id, w.name as brand_new from holdfast.worker w
"""


@pytest.fixture
def a_later_release(monkeypatch):
    """Adds a migration of its own."""
    known = migrations.known

    def apply(sql: str) -> None:
        def with_another(folder) -> list[Migration]:
            found = known(folder)
            return [*found, Migration(found[-1].version + 1, "later", 1, sql)]

        monkeypatch.setattr(migrations, "known", with_another)

    return apply


async def test_a_migration_may_change_a_view(store, url, a_later_release):
    a_later_release(NEW_VIEW)
    await store.migrate()
    assert ask(url, COLUMNS) == [("id",), ("brand_new",)]


async def test_whoever_may_read_a_view_still_may(store, url, a_later_release):
    ask(url, "grant select on public.workers to public")
    ask(url, "grant select on public.workers to pg_monitor")
    a_later_release(NEW_VIEW)
    await store.migrate()
    ((acl,),) = ask(url, "select relacl::text from pg_class where oid = 'public.workers'::regclass")
    assert ",=r/" in acl
    assert "pg_monitor=r/" in acl


async def test_a_view_of_somebody_else_is_left_alone(url, a_later_release):
    ask(url, "create view public.workers as select 1 as mine")
    store = await open_store(url)
    a_later_release(NEW_VIEW)
    await store.migrate()
    await store.close()
    assert ask(url, COLUMNS) == [("mine",)]


async def test_something_that_hangs_on_our_views_holds_up_only_what_it_must(
    store, url, a_later_release
):
    ask(url, "create view public.mine as select id from public.workers")
    a_later_release("create table holdfast.another (id int)")
    await store.migrate()
    a_later_release(NEW_VIEW)
    ask(url, "delete from holdfast.migration where name = 'later'")
    with pytest.raises(StoreError, match="drop it, and make it again afterwards"):
        await store.migrate()
    ask(url, "drop view public.mine")
    await store.migrate()
    assert ask(url, COLUMNS) == [("id",), ("brand_new",)]


async def test_a_database_without_public_is_set_up(url):
    ask(url, "drop schema public cascade")
    store = await open_store(url)
    await store.close()
    assert ask(url, "select count(*) from holdfast.tasks") == [(0,)]


@pytest.mark.parametrize("option", ["?public_views=0", ""])
async def test_the_views_stay_out_of_public_where_that_is_asked_for(url, option):
    store = await open_store(url + option, public_views=bool(option))
    await store.close()
    conn = await asyncpg.connect(url)
    assert await conn.fetchval("select to_regclass('public.tasks')::text") is None
    await conn.close()
