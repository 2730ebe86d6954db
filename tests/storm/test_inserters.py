"""Sixty-four inserters on one idempotency key, some of which roll back or lose their connection:
one task, and everyone who committed heard of it."""

import asyncio
import random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.ids import new_id
from holdfast.tasks.task import Draft
from tests.storm.ledger import peek
from tests.storm.processes import open_store, race

PROCESSES, EACH = 8, 8


async def inserters(me: int, url: str, keys: int) -> list[tuple[int, UUID]]:
    """Eight of them in one process; answers (key, id) of all that committed."""
    found = await asyncio.gather(*(inserter(me * EACH + n, url, keys) for n in range(EACH)))
    return [answer for answers in found for answer in answers]


async def inserter(seed: int, url: str, keys: int) -> list[tuple[int, UUID]]:
    chance, store, heard = random.Random(seed), open_store(url), []
    conn = await asyncpg.connect(url)
    for key in range(keys):
        draft = Draft(id=new_id(), type="once", key=f"key {key}")
        transaction = conn.transaction()
        await transaction.start()
        (id,) = await store.enqueue([draft], conn=conn)
        await asyncio.sleep(chance.random() * 0.002)
        match chance.choice(["commit", "commit", "roll back", "cut"]):
            case "commit":
                await transaction.commit()
                heard.append((key, id))
            case "roll back":
                await transaction.rollback()
            case _:
                conn.terminate()
                conn = await asyncpg.connect(url)
    await conn.close()
    await store.close()
    return heard


def storm(url: str, keys: int, within: float) -> None:
    asyncio.run(prepare(url))
    each: list[tuple[Any, ...]] = [(me, url, keys) for me in range(PROCESSES)]
    heard = {pair for answer in race(inserters, each, within=within) for pair in answer}
    rows = peek(url, "select key, id from {s}task")
    assert len({key for key, _ in heard}) == len(heard) == len(rows)
    assert {(f"key {key}", id) for key, id in heard} == set(rows)
    ready = peek(url, "select count(*), count(distinct id) from {s}ready")
    assert ready == [(len(rows), len(rows))]


async def prepare(url: str) -> None:
    store = open_store(url)
    await store.migrate()
    await store.close()


def test_sixty_four_inserters_make_one_task_per_key(postgres_place: str) -> None:
    storm(postgres_place, keys=20, within=300)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_also_with_many_keys(postgres_place: str) -> None:
    storm(postgres_place, keys=200, within=300)
