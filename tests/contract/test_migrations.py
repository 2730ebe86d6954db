"""Migrations: forward only, safe to repeat; what does not fit is refused, and says what to do."""

import asyncio

import pytest

from holdfast.errors import SchemaMismatch
from holdfast.ids import new_grant, new_id
from holdfast.records import LogLine
from holdfast.tasks.task import Lease
from tests.contract.acts import DONE, claim_one, draft, finish, put_one, seconds


@pytest.fixture
def elsewhere(keeper):
    return keeper.elsewhere


async def _pretend(place, version: int, fits: int) -> None:
    """As a later release would leave it."""
    await place.peek(
        "insert into migration (version, name, fits, applied_at) "
        f"select {version}, 'later', {fits}, max(applied_at) from migration"
    )


async def test_a_new_database_is_set_up_and_works(elsewhere):
    async with elsewhere() as place:
        store = place.store()
        version = await store.migrate()
        assert version > 0
        assert await place.driver.check() == version
        id = await put_one(store)
        await finish(store, await claim_one(store))
        assert (await store.ending(id)).result == DONE.result


async def test_migrating_again_changes_nothing(elsewhere):
    async with elsewhere() as place:
        version = await place.store().migrate()
        before = await place.peek("select * from migration order by version")
        assert await place.store().migrate() == version
        assert await place.peek("select * from migration order by version") == before
        assert [row[0] for row in before] == list(range(1, version + 1))


async def test_many_may_migrate_at_once(elsewhere):
    async with elsewhere() as place:
        versions = await asyncio.gather(*(place.store().migrate() for _ in range(5)))
        assert len(set(versions)) == 1
        assert len(await place.peek("select * from migration")) == versions[0]


async def test_a_newer_schema_that_still_fits_is_accepted(elsewhere):
    async with elsewhere() as place:
        store = place.store()
        version = await store.migrate()
        await _pretend(place, version + 1, fits=version)
        assert await place.driver.check() == version + 1
        assert await store.migrate() == version + 1
        await put_one(store)
        await finish(store, await claim_one(store))


async def test_a_newer_schema_that_does_not_fit_is_refused(elsewhere):
    async with elsewhere() as place:
        version = await place.store().migrate()
        await _pretend(place, version + 1, fits=version + 1)
        for ask in (place.driver.check, place.store().migrate):
            with pytest.raises(SchemaMismatch, match="Upgrade holdfast on this machine"):
                await ask()


async def test_an_older_schema_asks_to_be_migrated(elsewhere):
    async with elsewhere() as place:
        version = await place.store().migrate()
        await place.peek(f"delete from migration where version = {version}")
        with pytest.raises(SchemaMismatch, match="holdfast migrate up"):
            await place.driver.check()


async def test_an_empty_database_asks_to_be_migrated(elsewhere):
    async with elsewhere() as place:
        with pytest.raises(SchemaMismatch, match="migrate"):
            await place.driver.check()


LINE = LogLine(position=1, level="INFO", logger="", message="")
VERBS = {
    "enqueue": lambda s: s.enqueue([draft()]),
    "claim": lambda s: s.claim(worker=1, lanes=[1], want=1, lease=seconds(9)),
    "settle": lambda s: s.settle([(Lease(new_id(), new_grant(), 1), DONE)]),
    "recover": lambda s: s.recover(),
    "cancel": lambda s: s.cancel([new_id()]),
    "get": lambda s: s.get(new_id()),
    "queue_loads": lambda s: s.queue_loads(),
    "pause": lambda s: s.pause("q"),
    "key": lambda s: s.key("k"),
    "note": lambda s: s.note("ann", "look"),
    "begin_request": lambda s: s.begin_request("s", "k", b"d", token=new_grant()),
    "log": lambda s: s.log(Lease(new_id(), new_grant(), 1), [LINE]),
    "take_operations": lambda s: s.take_operations(new_grant()),
    "roll_up": lambda s: s.roll_up(),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_every_verb_on_an_empty_database_says_what_to_do(elsewhere, verb):
    async with elsewhere() as place:
        with pytest.raises(SchemaMismatch, match=r"store\.migrate\(\)"):
            await verb(place.store())


async def test_two_stores_beside_each_other_see_nothing_of_each_other(store, elsewhere):
    async with elsewhere() as place:
        other = place.store()
        await other.migrate()
        id = await put_one(store, key="order-7")
        assert await put_one(other, key="order-7", payload=b"[2]") != id
        assert (await claim_one(other)).payload == b"[2]"
        assert (await claim_one(store)).lease.task == id
