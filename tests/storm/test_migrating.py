"""Ten processes that start at once on an empty database."""

from datetime import timedelta
from typing import Any

from holdfast.ids import new_id
from holdfast.tasks.task import Draft
from tests.storm.ledger import peek
from tests.storm.processes import open_store, race

PROCESSES = 10


async def starter(me: int, place: str) -> int:
    """Migrates, and goes to work at once."""
    store = open_store(place)
    version = await store.migrate()
    await store.enqueue([Draft(id=new_id(), type="first", queue=f"q{me}")])
    lanes = (await store.lanes()).lanes
    await store.claim(worker=me, lanes=list(lanes), want=1, lease=timedelta(minutes=1))
    assert await store.migrate() == version
    await store.close()
    return version


def test_ten_processes_migrate_an_empty_database_at_once(place: str) -> None:
    each: list[tuple[Any, ...]] = [(me, place) for me in range(PROCESSES)]
    versions = race(starter, each, within=300)
    assert len(set(versions)) == 1
    assert peek(place, "select count(*) from {s}task") == [(PROCESSES,)]
