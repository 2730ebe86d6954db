"""Roles that may little: set up what they may, and hear what to grant for the rest."""

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from holdfast.errors import InvalidInput, StoreError
from holdfast.stores.opening import open_store
from tests.contract.acts import claim_one, draft, finish, put_one
from tests.servers import ask


@pytest.fixture
def role(url: str) -> Iterator[str]:
    """A role that may nothing but log in."""
    name = f"role_{uuid4().hex}"
    ask(url, f"create role {name} login")
    yield name
    ask(url, f"drop owned by {name} cascade")
    ask(url, f"drop role {name}")


@pytest.fixture
def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


def _database(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _in_public(url: str):
    return ask(url, "select count(*) from pg_views where schemaname = 'public'")[0][0]


async def _works(url: str) -> None:
    store = await open_store(url)
    await put_one(store)
    await finish(store, await claim_one(store))
    await store.close()


async def test_a_role_that_may_not_create_in_public_sets_up_all_the_rest(url, as_role, role):
    ask(url, f"grant create on database {_database(url)} to {role}")
    await _works(as_role)
    assert _in_public(url) == 0


async def test_a_schema_that_was_made_for_the_role_is_used(url, as_role, role):
    ask(url, f"create schema holdfast authorization {role}")
    ask(url, f"grant create on schema public to {role}")
    await _works(as_role)
    assert _in_public(url) > 0


async def test_a_role_that_may_not_set_up_hears_what_to_grant(url, as_role, role):
    with pytest.raises(StoreError, match=f"grant create on database .* to {role}"):
        await open_store(as_role)


async def test_a_role_without_rights_on_the_tables_hears_what_to_grant(url, as_role, role):
    await (await open_store(url)).close()
    with pytest.raises(StoreError, match="lacks a right; grant it usage on the schema"):
        await open_store(as_role)
    ask(url, f"grant usage on schema holdfast to {role}")
    ask(url, f"grant select on holdfast.migration to {role}")
    store = await open_store(as_role)
    with pytest.raises(StoreError, match="lacks a right"):
        await store.enqueue([draft()])
    await store.close()


async def test_a_schema_may_have_a_name_that_sql_reserves(url):
    await _works(f"{url}?schema=user")
    assert ask(url, 'select count(*) from "user".tasks') == [(1,)]


@pytest.mark.parametrize("name", ["pg_mine", "information_schema", "My", "a-b", "a" * 42])
async def test_names_that_no_schema_can_have_are_refused(url, name):
    with pytest.raises(InvalidInput, match="is not a name"):
        await open_store(f"{url}?schema={name}")
