"""Keys of the API: digests only, judged by the database's clock."""

from datetime import timedelta

import pytest

from holdfast.errors import InvalidInput
from tests.contract.acts import seconds

DIGEST, ANOTHER = bytes(range(32)), bytes(32)


async def _add(store, id="k1", **fields) -> None:
    usual = {"name": "deploy", "scopes": ["tasks:read"], "digest": DIGEST, "created_by": "ann"}
    await store.add_key(id, **{**usual, **fields})


async def test_a_key_is_found_by_its_id(store):
    await _add(store, tenant="acme", scopes=["tasks:read", "tasks:enqueue"])
    key = await store.key("k1")
    assert (key.name, key.tenant, key.digest, key.created_by) == ("deploy", "acme", DIGEST, "ann")
    assert key.scopes == ("tasks:enqueue", "tasks:read")
    assert (key.expires_at, key.last_used_at, key.revoked_at) == (None, None, None)
    assert key.is_valid
    assert await store.key("k2") is None


async def test_all_keys_are_listed_oldest_first(store, clock):
    for id in ("b", "a"):
        await _add(store, id)
        await clock.advance(1)
    assert [key.id for key in await store.keys()] == ["b", "a"]


async def test_a_key_expires_by_the_databases_clock(store, clock):
    await _add(store, expires=seconds(60))
    await clock.advance(59)
    assert (await store.key("k1")).is_valid
    await clock.advance(1)
    key = await store.key("k1")
    assert key.expired
    assert not key.is_valid
    assert key.expires_at - key.created_at == seconds(60)


async def test_a_revoked_key_stays_on_record(store, clock):
    await _add(store)
    await clock.advance(5)
    assert await store.revoke_key("k1")
    key = await store.key("k1")
    assert key.revoked_at - key.created_at == seconds(5)
    assert not key.is_valid
    await clock.advance(5)
    assert not await store.revoke_key("k1")
    assert (await store.key("k1")).revoked_at == key.revoked_at
    assert not await store.revoke_key("nobody")


async def test_adding_the_same_key_again_changes_nothing(store, dump):
    await _add(store)
    await store.revoke_key("k1")
    before = await dump()
    await _add(store)
    assert await dump() == before


async def test_the_id_of_another_key_is_refused(store, dump):
    await _add(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="another key"):
        await _add(store, digest=ANOTHER)
    assert await dump() == before


async def test_the_last_use_is_written_once_a_minute(store, clock):
    for id in ("a", "b", "c"):
        await _add(store, id)
    first = (await store.key("a")).created_at
    assert await store.touch_keys(["a", "b", "nobody"]) == 2
    await clock.advance(59)
    assert await store.touch_keys(["a", "b", "c", "a"]) == 1
    await clock.advance(1)
    assert await store.touch_keys(["a"]) == 1
    used = [key.last_used_at - first for key in await store.keys()]
    assert used == [seconds(60), seconds(0), seconds(59)]
    assert await store.touch_keys([]) == 0


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"digest": b"short"}, "16 bytes"),
        ({"digest": "text"}, "16 bytes"),
        ({"id": ""}, "1 to 255"),
        ({"id": "a\0"}, "remove it"),
        ({"tenant": "a b"}, "letters, digits"),
        ({"scopes": "tasks:read"}, "list of names"),
        ({"scopes": ["a b"]}, "letters, digits"),
        ({"expires": timedelta(seconds=-1)}, "negative"),
    ],
    ids=str,
)
async def test_a_key_that_cannot_be_is_refused(store, dump, fields, advice):
    before = await dump()
    with pytest.raises(InvalidInput, match=advice):
        await _add(store, **fields)
    assert await dump() == before
